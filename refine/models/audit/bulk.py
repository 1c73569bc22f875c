"""Many records at once, by COPY: an object for each would take several times as long."""

from collections.abc import Collection
from datetime import datetime
from typing import cast

from sqlalchemy import Table

from refine.extensions import db
from refine.extensions.copying import copy_rows
from refine.models.audit.chain import Chain, ChainHead
from refine.models.audit.linking import RECORD_COLUMNS, Event, next_records
from refine.models.audit.record import RECORD_IDS, AuditLog
from refine.models.columns import next_ids


def record_many(events: Collection[Event], *, chain: Chain, at: datetime) -> None:
    """Append a record of each event, as ``AuditLog.record_all`` does, and return none of them."""
    db.session.flush()
    head = ChainHead.locked(chain.chain_owner)
    numbered = zip(next_ids(RECORD_IDS, len(events)), events, strict=True)
    written = next_records(head, numbered, chain, at)
    copy_rows(cast(Table, AuditLog.__table__), RECORD_COLUMNS, written)
    db.session.flush()
