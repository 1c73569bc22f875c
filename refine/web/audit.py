"""The audit log: a timeline with filters in the URL, a page for each record, an export."""

import csv
import io
import json
import uuid
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any, NamedTuple

from flask import Blueprint, Response, render_template, request, stream_with_context
from flask.typing import ResponseReturnValue
from sqlalchemy import ColumnElement, Date, Select, and_, cast, func, or_, select, true
from sqlalchemy.orm import defer, joinedload

from refine import clock
from refine.extensions import db
from refine.models import AuditLog, ChainHead
from refine.web import granted, scope
from refine.web.days import day_of, midnight
from refine.web.paging import page_of
from refine.web.words import ACTIONS

pages = Blueprint("audit", __name__)

_STRIP_DAYS = 30
_EXPORTED_AT_ONCE = 500
_COLUMNS = (
    "id",
    "chain",
    "sequence",
    "at",
    "action",
    "account_id",
    "agent_id",
    "session_id",
    "user_id",
    "subject_type",
    "subject_id",
    "data",
    "hash",
)
# A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Filter(NamedTuple):
    """What the URL asks for."""

    action: str
    agent_id: int | None
    session_id: uuid.UUID | None
    since: date | None
    until: date | None

    @classmethod
    def of_request(cls) -> "Filter":
        """Read it; what makes no sense counts as not asked for."""
        args = request.args
        return cls(
            action=args.get("action", "") if args.get("action", "") in ACTIONS else "",
            agent_id=scope.chosen_agent_id(),
            session_id=_uuid(args.get("session", "")),
            since=day_of(args.get("since", "")),
            until=day_of(args.get("until", "")),
        )

    def condition(self) -> ColumnElement[bool]:
        """Return it as a condition on records."""
        return and_(
            true(),
            AuditLog.action == self.action if self.action else true(),
            AuditLog.agent_id == self.agent_id if self.agent_id is not None else true(),
            AuditLog.session_id == self.session_id if self.session_id is not None else true(),
            AuditLog.created_at >= midnight(self.since) if self.since else true(),
            AuditLog.created_at < midnight(self.until, 1) if self.until else true(),
        )

    def as_args(self) -> dict[str, str]:
        """Return it as the URL has it, without what is not asked for."""
        named = {
            "action": self.action,
            "agent": self.agent_id,
            "session": self.session_id,
            "since": self.since,
            "until": self.until,
            "account": request.args.get("account", ""),
        }
        return {name: str(value) for name, value in named.items() if value not in (None, "")}


@pages.get("/audit")
def page() -> str:
    """The records, newest first."""
    wanted = Filter.of_request()
    agent = scope.agent_or_404(wanted.agent_id) if wanted.agent_id is not None else None
    # an import's record lists hundreds of memories
    page = page_of(_records(wanted).options(defer(AuditLog.data)))
    return render_template(
        "audit/page.html",
        page=page,
        records=[row[0] for row in page.rows],
        wanted=wanted,
        agent=agent,
        strip=_strip(wanted),
        heads=_heads(wanted),
    )


@pages.get("/audit/<int:record_id>")
def record(record_id: int) -> str:
    """One record: what it says in the open; contents stay sealed without the agent's grant."""
    found = scope.record_or_404(record_id)
    opened = granted.record(found.agent_id, record_id)
    return render_template("audit/record.html", record=found, opened=opened)


@pages.get("/audit/export.csv")
def export_csv() -> ResponseReturnValue:
    """Exactly the records of the filter, as CSV."""
    return _export("csv", "text/csv", _csv_lines)


@pages.get("/audit/export.jsonl")
def export_jsonl() -> ResponseReturnValue:
    """Exactly the records of the filter, as JSON Lines."""
    return _export("jsonl", "application/jsonl", _json_lines)


def _records(wanted: Filter) -> Select[Any]:
    query = (
        select(AuditLog)
        .options(joinedload(AuditLog.user), joinedload(AuditLog.agent))
        .where(wanted.condition())
        .order_by(AuditLog.id.desc())
    )
    return query.where(_is_visible())


def _is_visible() -> ColumnElement[bool]:
    """The platform's own records belong to no account: they are the site admins' to see."""
    ours = AuditLog.account_id.in_(scope.account_ids())
    if scope.user().site_admin and scope.chosen_account() is None:
        return or_(ours, AuditLog.account_id.is_(None))
    return ours


def _strip(wanted: Filter) -> list[tuple[date, int, int]]:
    """The last 30 days with their numbers of records, and those in percent of the fullest."""
    zone = scope.zone()
    today = clock.now().astimezone(zone).date()
    first = today - timedelta(days=_STRIP_DAYS - 1)
    day = cast(func.timezone(zone.key, AuditLog.created_at), Date)
    anywhen = wanted._replace(since=first, until=today)
    counted = select(day, func.count()).where(anywhen.condition(), _is_visible()).group_by(day)
    counts: dict[date, int] = dict(db.session.execute(counted).all())
    most = max(counts.values(), default=1)
    days = [first + timedelta(days=number) for number in range(_STRIP_DAYS)]
    return [(each, counts.get(each, 0), 100 * counts.get(each, 0) // most) for each in days]


def _heads(wanted: Filter) -> dict[str, Any]:
    """How far the chains of this page were found whole, and since when."""
    of_page = select(
        func.count(),
        func.min(ChainHead.verified_at),
        func.count().filter(ChainHead.verified_at.is_(None)),
        func.coalesce(func.sum(ChainHead.sequence - ChainHead.verified_sequence), 0),
        func.max(ChainHead.verified_sequence),
    )
    if wanted.agent_id is not None:
        of_page = of_page.where(ChainHead.agent_id == wanted.agent_id)
    elif not scope.user().site_admin or scope.chosen_account() is not None:
        chains = select(AuditLog.chain_id).where(AuditLog.account_id.in_(scope.account_ids()))
        of_page = of_page.where(ChainHead.id.in_(chains.distinct()))
    names = ("chains", "verified_at", "never", "since", "verified_sequence")
    return dict(zip(names, db.session.execute(of_page).one(), strict=True))


def _export(kind: str, mimetype: str, lines: Any) -> Response:
    wanted = Filter.of_request()
    if wanted.agent_id is not None:
        scope.agent_or_404(wanted.agent_id)
    answer = Response(stream_with_context(lines(_streamed(_records(wanted)))), mimetype=mimetype)
    named = f"audit-{clock.now():%Y-%m-%d}.{kind}"
    answer.headers["Content-Disposition"] = f"attachment; filename={named}"
    return answer


def _streamed(query: Select[Any]) -> Iterator[AuditLog]:
    """The query's records; asked for while they are sent, when the request's session has ended."""
    yield from db.session.scalars(query.execution_options(yield_per=_EXPORTED_AT_ONCE))


def _csv_lines(records: Any) -> Iterator[str]:
    yield _csv_line(_COLUMNS)
    for record in records:
        row = _row(record)
        row["data"] = json.dumps(row["data"], ensure_ascii=False, sort_keys=True)
        yield _csv_line([_cell(row[column]) for column in _COLUMNS])


def _json_lines(records: Any) -> Iterator[str]:
    for record in records:
        yield json.dumps(_row(record), ensure_ascii=False) + "\n"


def _row(record: AuditLog) -> dict[str, Any]:
    return {
        "id": record.id,
        "chain": record.chain_id,
        "sequence": record.sequence,
        "at": clock.iso(record.created_at),
        "action": record.action,
        "account_id": record.account_id,
        "agent_id": record.agent_id,
        "session_id": str(record.session_id) if record.session_id else None,
        "user_id": record.user_id,
        "subject_type": record.auditable_type,
        "subject_id": record.auditable_id,
        "data": record.data,
        "hash": record.hash,
    }


def _csv_line(cells: Any) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
