"""Many records at once, by COPY: an object for each would take several times as long."""

from collections.abc import Collection
from datetime import datetime
from typing import cast

from sqlalchemy import Table

from refine.extensions import canonical_json, copy_rows, db
from refine.models.attested import changed_rows
from refine.models.audit.record import (
    LINK_CONTEXT,
    RECORD_IDS,
    AuditLog,
    Chain,
    ChainHead,
    Event,
    StoredRecord,
    link_text,
)
from refine.models.columns import next_ids
from refine.models.keys import WrappedKey

_COLUMNS = ["sealed" if name == "sealed_text" else name for name in StoredRecord._fields]


def record_many(events: Collection[Event], *, chain: Chain, at: datetime) -> None:
    """Append a record of each event, as ``AuditLog.record_all`` does, and return none of them."""
    db.session.flush()
    platform = WrappedKey.platform_key()
    head = ChainHead.locked(chain.chain_owner)
    hash_, rows = head.hash, changed_rows(chain.chain_owner)
    written = []
    ids = next_ids(RECORD_IDS, len(events))
    for number, (id_, event) in enumerate(zip(ids, events, strict=True), 1):
        record = StoredRecord(
            id=id_,
            chain_id=head.id,
            sequence=head.sequence + number,
            account_id=chain.account_id,
            agent_id=chain.agent_id,
            created_at=at,
            sealed_text=event.sealed_for(chain, id_),
            rows=canonical_json(rows) if rows and number == 1 else None,
            hash="",
            **event.columns() | {"data": canonical_json(event.data or {})},
        )
        hash_ = platform.mac(link_text(hash_, record), LINK_CONTEXT)
        written.append(record._replace(hash=hash_))
    copy_rows(cast(Table, AuditLog.__table__), _COLUMNS, written)
    head.advance(sequence=head.sequence + len(written), hash=hash_)
    db.session.flush()
