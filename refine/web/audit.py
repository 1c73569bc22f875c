"""The audit log: a filtered list, a page for each record, and exports."""

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from flask import (
    Blueprint,
    Flask,
    Response,
    current_app,
    render_template,
    request,
    stream_with_context,
)
from flask.typing import ResponseReturnValue
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Date,
    Select,
    and_,
    bindparam,
    cast,
    func,
    select,
    true,
)

from refine import clock
from refine.extensions import db
from refine.models import Agent, AuditLog, ChainHead, User
from refine.models.columns import account_parameter
from refine.models.ledger.history import shown_data
from refine.models.people.recording import CLIENT_KEY
from refine.rules.personal import mask_ids
from refine.web import granted, scope
from refine.web.charts import DAYS_SHOWN
from refine.web.csv_export import csv_line
from refine.web.forms import day_of, midnight
from refine.web.paging import page_of
from refine.web.words import ACTIONS, here

pages = Blueprint("audit", __name__)

# What the list shows, without ``data``: that of an import's record is hundreds of memories.
_LISTED: tuple[Any, ...] = (
    AuditLog.id,
    AuditLog.sequence,
    AuditLog.action,
    AuditLog.created_at,
    AuditLog.session_id,
    AuditLog.agent_id,
    Agent.name.label("agent_name"),
    User.email,
    AuditLog.by,
    AuditLog.client_address,
)

# How many records there were on days that are over, by day, for each account, action and time zone.
_Counts = dict[tuple[int | None, str, str], dict[date, int]]
_KEPT_COUNTS = "refine.audit.counts"
_MAX_KEPT_COUNTS = 1_000
# When all of a day's records are surely written: no transaction takes so long.
_IS_WRITTEN_AFTER = timedelta(hours=1)

_EXPORT_BATCH_ROWS = 500
_EXPORTED: dict[str, Callable[[AuditLog], Any]] = {
    "id": lambda record: record.id,
    "chain": lambda record: record.chain_id,
    "sequence": lambda record: record.sequence,
    "at": lambda record: clock.iso(record.created_at),
    "action": lambda record: record.action,
    "account_id": lambda record: record.account_id,
    "agent_id": lambda record: record.agent_id,
    "session_id": lambda record: record.session_id,
    "user_id": lambda record: record.user_id,
    "subject_type": lambda record: record.auditable_type,
    "subject_id": lambda record: record.auditable_id,
    "data": lambda record: mask_ids(shown_data(record)),
    "hash": lambda record: record.hash,
}


def register(app: Flask) -> None:
    """Let the pages keep what they counted, as records never change."""
    app.extensions[_KEPT_COUNTS] = {}


class AuditFilter(NamedTuple):
    action: str
    agent_id: int | None
    session_id: uuid.UUID | None
    since: date | None
    until: date | None

    @classmethod
    def of_request(cls) -> "AuditFilter":
        """Read the filter from the URL; invalid values are ignored."""
        args = request.args
        return cls(
            action=args.get("action", "") if args.get("action", "") in ACTIONS else "",
            agent_id=scope.chosen_agent_id(),
            session_id=_uuid(args.get("session", "")),
            since=day_of(args.get("since", "")),
            until=day_of(args.get("until", "")),
        )

    def condition(self) -> ColumnElement[bool]:
        return and_(
            true(),
            AuditLog.action == self.action if self.action else true(),
            AuditLog.agent_id == self.agent_id if self.agent_id is not None else true(),
            AuditLog.session_id == self.session_id if self.session_id is not None else true(),
            AuditLog.created_at >= midnight(self.since) if self.since else true(),
            AuditLog.created_at < midnight(self.until, 1) if self.until else true(),
        )

    def as_args(self) -> dict[str, str]:
        """Return the arguments of a URL with this filter, the empty ones left out."""
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
    chosen = AuditFilter.of_request()
    agent = scope.agent_or_404(chosen.agent_id) if chosen.agent_id is not None else None
    page = page_of(_in_order(_listed(), chosen))
    return render_template(
        "audit/page.html",
        page=page,
        records=page.rows,
        filter=chosen,
        agent=agent,
        strip=_strip(chosen),
        days_url=_days_url(),
        chains=_chains(chosen),
    )


@cache
def _listed() -> Select[*tuple[Any, ...]]:
    return select(*_LISTED).outerjoin(User).outerjoin(Agent)


@pages.get("/audit/<int:record_id>")
def record(record_id: int) -> str:
    """Show the open data of a record; its contents stay sealed without an active grant."""
    found = scope.found_or_404(AuditLog, record_id)
    opened = granted.record(found.agent_id, record_id)
    client = found.data.get(CLIENT_KEY) if scope.user().may_act else None
    return render_template("audit/record.html", record=found, opened=opened, client=client)


@pages.get("/audit/export.csv")
def export_csv() -> ResponseReturnValue:
    return _export("csv", "text/csv", _csv_lines)


@pages.get("/audit/export.jsonl")
def export_jsonl() -> ResponseReturnValue:
    return _export("jsonl", "application/jsonl", _json_lines)


def _days_url() -> str:
    """Return the URL of this list, up to the days that it is to show."""
    url = here(since=None, until=None, page=None)
    return f"{url}{'&' if '?' in url else '?'}"


def _in_order(records: Select[Any], chosen: AuditFilter) -> Select[Any]:
    """Return those of the records that the filter lets through and the user may see."""
    return records.where(chosen.condition(), _is_visible()).order_by(
        AuditLog.created_at.desc(), AuditLog.id.desc()
    )


def _is_visible() -> ColumnElement[bool]:
    """Records of accounts that the user may see; the installation's own only for site admins."""
    return scope.owns(AuditLog.account_id)


class DayBar(NamedTuple):
    day: date
    records: int
    percent: int

    @property
    def top(self) -> int:
        return 100 - self.percent


def _strip(chosen: AuditFilter) -> list[DayBar]:
    """Count the records of each recent day, whatever days are filtered."""
    today = clock.now().astimezone(scope.zone()).date()
    days = [today - timedelta(days=back) for back in reversed(range(DAYS_SHOWN))]
    counts = _counts(chosen, days)
    most = max(counts.values()) or 1
    return [DayBar(day, counts[day], 100 * counts[day] // most) for day in days]


def _counts(chosen: AuditFilter, days: list[date]) -> dict[date, int]:
    """Count the records of each of these days; those of days that are over only once."""
    kept: _Counts = current_app.extensions[_KEPT_COUNTS]
    if len(kept) > _MAX_KEPT_COUNTS:
        kept.clear()
    # an agent or a session has few records, and there are many of them
    is_kept = chosen.agent_id is None and chosen.session_id is None
    whose = (scope.account_id(), chosen.action, scope.zone().key)
    known = kept.get(whose, {}) if is_kept else {}
    since = next((day for day in days if day not in known), days[-1])
    counted = _counted_since(chosen, since, days[-1])
    counts = {day: known[day] if day < since else counted.get(day, 0) for day in days}
    over = (clock.now() - _IS_WRITTEN_AFTER).astimezone(scope.zone()).date()
    if is_kept:  # a new one, because other threads may read the present one
        kept[whose] = {day: count for day, count in counts.items() if day < over}
    return counts


def _counted_since(chosen: AuditFilter, since: date, until: date) -> dict[date, int]:
    day_of_record = cast(func.timezone(scope.zone().key, AuditLog.created_at), Date)
    counted = (
        select(day_of_record, func.count())
        .where(chosen._replace(since=since, until=until).condition(), _is_visible())
        .group_by(day_of_record)
    )
    return dict(db.session.execute(counted).all())


class ChainsVerified(NamedTuple):
    """How far the chains of a page were verified, and when."""

    total: int
    verified: int
    verified_at: datetime | None
    verified_sequence: int | None
    records_since: int

    @property
    def is_unverified(self) -> bool:
        return self.verified == 0


def _chains(chosen: AuditFilter) -> ChainsVerified:
    agent_id, account_id = chosen.agent_id, scope.account_id()
    chains = _chains_of(is_of_agent=agent_id is not None, is_of_account=account_id is not None)
    values = {"agent_id": agent_id, "account_id": account_id}
    return ChainsVerified(*db.session.execute(chains, values).one())


@cache
def _chains_of(*, is_of_agent: bool, is_of_account: bool) -> Select[*tuple[Any, ...]]:
    chains = select(
        func.count(),
        func.count(ChainHead.verified_at),
        func.min(ChainHead.verified_at),
        func.max(ChainHead.verified_sequence),
        func.coalesce(func.sum(ChainHead.sequence - ChainHead.verified_sequence), 0),
    )
    if is_of_agent:
        return chains.where(ChainHead.is_of_agent(bindparam("agent_id", type_=BigInteger)))
    if is_of_account:
        account_id = account_parameter(is_of_account=True)
        agents = select(Agent.id).where(Agent.account_id == account_id)
        chains = chains.where((ChainHead.account_id == account_id) | ChainHead.agent_id.in_(agents))
    return chains


def _export(kind: str, mimetype: str, lines: Any) -> Response:
    chosen = AuditFilter.of_request()
    if chosen.agent_id is not None:
        scope.agent_or_404(chosen.agent_id)
    shows_origin = scope.user().may_act  # asked before the response is sent
    rows = (_row(record, shows_origin) for record in _streamed(_in_order(select(AuditLog), chosen)))
    answer = Response(stream_with_context(lines(rows)), mimetype=mimetype)
    filename = f"audit-{clock.now():%Y-%m-%d}.{kind}"
    answer.headers["Content-Disposition"] = f"attachment; filename={filename}"
    return answer


def _streamed(query: Select[Any]) -> Iterator[AuditLog]:
    """Yield the records; runs while the response is sent, in a database session of its own."""
    yield from db.session.scalars(query.execution_options(yield_per=_EXPORT_BATCH_ROWS))


def _csv_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield csv_line(_EXPORTED)
    for row in rows:
        row["data"] = json.dumps(row["data"], ensure_ascii=False, sort_keys=True)
        yield csv_line(row.values())


def _json_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, ensure_ascii=False, default=str) + "\n"


def _row(record: AuditLog, shows_origin: bool) -> dict[str, Any]:
    row = {name: value(record) for name, value in _EXPORTED.items()}
    if not shows_origin:
        row["data"].pop(CLIENT_KEY, None)
    return row


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
