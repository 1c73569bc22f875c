"""Records as files, sent while they are read. That somebody took them is a record, too."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from flask import Response
from sqlalchemy import Select, select

from refine import clock
from refine.extensions import db
from refine.models import AuditLog
from refine.models.audit import PLATFORM
from refine.models.audit.record import CLIENT_KEY
from refine.models.exported import EXPORTED
from refine.web import scope
from refine.web.audit.filters import visible_records
from refine.web.csv_export import BATCH_ROWS, attachment, csv_line
from refine.web.lists import Chosen

_Row = dict[str, Any]


def csv_file(chosen: Chosen) -> Response:
    """Return the records as CSV."""
    return _file(chosen, "csv", "text/csv", _csv_lines)


def json_file(chosen: Chosen) -> Response:
    """Return the records as JSON Lines."""
    return _file(chosen, "jsonl", "application/jsonl", _json_lines)


def _file(
    chosen: Chosen,
    format_: str,
    mimetype: str,
    lines: Callable[[Iterator[_Row]], Iterator[str]],
) -> Response:
    # asked before the response is sent
    shows_origin, records = scope.user().may_act, visible_records(chosen, select(AuditLog))
    before = _recorded(chosen, format_)
    rows = (_row(record, shows_origin) for record in _streamed(records, before))
    return attachment(lines(rows), f"audit-{clock.now():%Y-%m-%d}.{format_}", mimetype)


def _recorded(chosen: Chosen, format_: str) -> int:
    """Record the export, in the chain of the account whose records it holds; return the id."""
    account = None if scope.sees_all_accounts() else scope.account_to_change()
    record = AuditLog.record(
        "audit_exported",
        chain=account.chain if account is not None else PLATFORM,
        subject=("Account", account.id) if account is not None else None,
        user=scope.user(),
        data={"format": format_, "filter": chosen.as_data()},
    )
    record_id = record.id
    db.session.commit()
    return record_id


def _streamed(records: Select[Any], before: int) -> Iterator[AuditLog]:
    """Yield those before the export; runs while it is sent, in a database session of its own."""
    some = records.where(AuditLog.id < before).execution_options(yield_per=BATCH_ROWS)
    yield from db.session.scalars(some)


def _row(record: AuditLog, shows_origin: bool) -> _Row:
    row = {name: value(record) for name, value in EXPORTED.items()}
    row["at"] = clock.iso(row["at"])
    if not shows_origin:
        row["data"].pop(CLIENT_KEY, None)
    return row


def _csv_lines(rows: Iterator[_Row]) -> Iterator[str]:
    yield csv_line(EXPORTED)
    for row in rows:
        yield csv_line(row.values())


def _json_lines(rows: Iterator[_Row]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, ensure_ascii=False, default=str) + "\n"
