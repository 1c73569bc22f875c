"""The audit log: a filtered list, a page for each record, and exports, which are records too."""

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from flask import Response, render_template, stream_with_context
from sqlalchemy import ColumnElement, Select, and_, case, cast, select
from sqlalchemy.dialects.postgresql import JSONB

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, AuditLog, ChainHead, User
from refine.models.audit import PLATFORM
from refine.models.audit.kinds import ACTIONS, ACTIONS_OF_KIND
from refine.models.audit.record import CLIENT_KEY
from refine.models.columns import id_in, in_ids, in_names
from refine.models.ledger.history import record_ids_about, shown_data
from refine.models.paging import OneOf
from refine.rules.personal import mask_ids
from refine.rules.quantities import cost_in_words
from refine.web import granted, in_place, scope
from refine.web.forms import midnight, uuid_of
from refine.web.links import here
from refine.web.lists import Chosen, Filter, by_day, of_agent, page_of
from refine.web.presenting import AGENT_OR_SYSTEM
from refine.web.record_changes import memory_changes, subject_of
from refine.web.templating import verification_watch
from refine.web.words import FIGURES, RECORD_KINDS, action, labelled

pages = scope.area("audit")

# A page must stay small, and an import's record holds hundreds of memories.
_MAX_JSON_CHARACTERS = 20_000
# More records are expected so soon after one.
_JUST_NOW = timedelta(minutes=1)

# What the list shows, without ``data``: that of an import's record is hundreds of memories.
_LISTED: tuple[Any, ...] = (
    AuditLog.id,
    AuditLog.sequence,
    AuditLog.auditable_type,
    AuditLog.auditable_id,
    AuditLog.action,
    case(
        (
            AuditLog.action == "memory_refinement_rollback",
            cast(AuditLog.data, JSONB)["operation"].astext,
        )
    ).label("operation"),
    AuditLog.created_at,
    AuditLog.session_id,
    AuditLog.agent_id,
    case((AuditLog.auditable_type == "AgentMemory", AuditLog.auditable_id)).label("memory_id"),
    Agent.name.label("agent_name"),
    User.email,
    AuditLog.by,
    AuditLog.client_address,
    Account.name.label("account_name"),
)


_MAX_WHO_CHARACTERS = 254


class ActorFilter(NamedTuple):
    who: str
    user_id: int | None

    @classmethod
    def named(cls, who: str) -> "ActorFilter":
        found = User.by_email(who) if "@" in who else None
        return cls(who, found.id if found is not None else None)

    def condition(self) -> ColumnElement[bool]:
        if self.who == AGENT_OR_SYSTEM:
            return and_(AuditLog.user_id.is_(None), AuditLog.by.is_(None))
        if "@" in self.who:  # nobody's, if no user has the address
            return AuditLog.user_id == (self.user_id or 0)
        return AuditLog.by == self.who

    def as_data(self) -> dict[str, Any]:
        """Return the actor as records keep them, without users of other accounts."""
        if "@" not in self.who:
            return {"who": self.who}
        user = db.session.get(User, self.user_id) if self.user_id is not None else None
        is_known = user is not None and scope.user().may_see(user.account_id)
        return {"user_id": self.user_id} if is_known else {}


def _actions(chosen: Chosen) -> dict[str, dict[str, str]]:
    kinds = [chosen["kind"]] if chosen["kind"] else list(ACTIONS_OF_KIND)
    return {
        RECORD_KINDS[kind]: {each: action(each) for each in ACTIONS_OF_KIND[kind]} for kind in kinds
    }


# A new filter is one more entry: the list, exports and their records follow.
FILTERS = [
    Filter(
        "kind",
        "Kind",
        read=lambda text: text if text in ACTIONS_OF_KIND else None,
        condition=lambda kind: in_names(AuditLog.action, ACTIONS_OF_KIND[kind]),
        shown=lambda kind: RECORD_KINDS[kind],
    ),
    Filter(
        "action",
        "Action",
        read=lambda text: text if text in ACTIONS else None,
        condition=lambda name: AuditLog.action == name,
        choices=_actions,
        shown=action,
    ),
    of_agent(AuditLog.agent_id),
    Filter(
        "who",
        "By",
        read=lambda text: ActorFilter.named(text[:_MAX_WHO_CHARACTERS]) if text else None,
        condition=lambda actor: actor.condition(),
        input="text",
        attributes={"placeholder": "e-mail, agent, platform, command line", "size": 32},
        shown=lambda actor: f"by {actor.who}",
        recorded=lambda actor: actor.as_data(),
    ),
    Filter(
        "memory",
        "Memory",
        read=lambda text: id_in(text.removeprefix("#")),
        condition=lambda id_: in_ids(AuditLog.id, record_ids_about(id_)),
        input="text",
        attributes={"placeholder": "number", "size": 8, "inputmode": "numeric"},
        shown=lambda id_: f"memory #{id_}",
        recorded=lambda id_: {"memory_id": id_},
    ),
    Filter(
        "session",
        "Session",
        read=uuid_of,
        condition=lambda id_: AuditLog.session_id == id_,
        shown=lambda id_: "one session",
        recorded=lambda id_: {"session_id": str(id_)},
    ),
    by_day("since", "From", lambda on: AuditLog.created_at >= midnight(on)),
    by_day("until", "To", lambda on: AuditLog.created_at < midnight(on, 1)),
]


def actions_of_kind(chosen: Chosen) -> OneOf | None:
    """Return the kind's actions, to union their rows; None where another filter is narrower."""
    by = chosen["who"]
    has_few = any(chosen[name] is not None for name in ("action", "agent", "session", "memory"))
    if chosen["kind"] is None or has_few or (by is not None and by.who != AGENT_OR_SYSTEM):
        return None
    return OneOf(AuditLog.action, ACTIONS_OF_KIND[chosen["kind"]])


def visible_records(
    chosen: Chosen, of: Select[*tuple[Any, ...]], *, without: tuple[str, ...] = ()
) -> Select[*tuple[Any, ...]]:
    """Return the chosen records, newest first; the installation's own for site admins alone."""
    return of.where(
        scope.in_scope(AuditLog.account_id), *chosen.conditions(without=without)
    ).order_by(AuditLog.created_at.desc(), AuditLog.id.desc())


@pages.get("/audit")
def page() -> str:
    chosen = Chosen(FILTERS)
    agent, one_of = chosen["agent"], actions_of_kind(chosen)
    listed = select(*_LISTED).select_from(AuditLog).outerjoin(User).outerjoin(Agent)
    listed = listed.outerjoin(Account, Account.id == AuditLog.account_id)
    without = ("kind",) if one_of is not None else ()
    has_few = any(chosen[name] for name in ("agent", "session", "memory"))
    query = visible_records(chosen, listed, without=without)
    page = page_of(query, one_of=one_of, is_counted=has_few)
    return render_template(
        "audit/page.html",
        page=page,
        chosen=chosen,
        views=[
            (name, here(kind=kind, action=None, page=None), kind == chosen["kind"])
            for kind, name in [(None, "All"), *RECORD_KINDS.items()]
        ],
        subject_of=subject_of,
        chain=_chain_of(agent) if agent else None,
        verification=None if agent else verification_watch().last,
        refresh_seconds=in_place.seconds_while(
            any(clock.now() - record.created_at < _JUST_NOW for record in page.rows[:1])
        ),
    )


def _chain_of(agent: Agent) -> Any:
    unverified = (ChainHead.sequence - ChainHead.verified_sequence).label("records_since")
    columns = ChainHead.verified_at, ChainHead.verified_sequence, unverified
    return db.session.execute(select(*columns).where(ChainHead.is_of_agent(agent.id))).first()


@pages.get("/audit/<int:record_id>")
def record(record_id: int) -> str:
    found = scope.found_or_404(AuditLog, record_id)
    opened = granted.record(found.agent_id, record_id)
    data = mask_ids(shown_data(found))
    client = data.pop(CLIENT_KEY, None)
    if client is not None and scope.user().may_act:
        data[CLIENT_KEY] = client
    return render_template(
        "audit/record.html",
        record=found,
        opened=opened,
        client=data.get(CLIENT_KEY),
        subject=subject_of(found),
        changes=memory_changes(found),
        figures=_figures(data),
        raw=json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True),
        max_characters=_MAX_JSON_CHARACTERS,
    )


def _figures(data: dict[str, Any]) -> list[tuple[str, Any]]:
    left_out = ("memories", "image_version", "operation", "changes", "stats", CLIENT_KEY)
    shown = {name: value for name, value in data.items() if name not in left_out}
    shown |= data.get("stats", {})
    if "cost_usd" in shown:
        unpriced = shown.get("unpriced_calls", 0)
        shown["cost"] = cost_in_words(Decimal(shown.pop("cost_usd")), unpriced)
    for name, (before, after) in data.get("changes", {}).items():
        shown[labelled(name)] = f"{_in_words(before)} → {_in_words(after)}"
    return sorted((FIGURES.get(name, name), _in_words(value)) for name, value in shown.items())


def _in_words(value: Any) -> Any:
    match value:
        case bool():
            return "yes" if value else "no"
        case None | []:
            return "none"
        case list():
            return ", ".join(map(str, value))
    return value


# The exported fields besides ``data``, and their attributes.
_ATTRIBUTES = {
    "id": "id",
    "chain": "chain_id",
    "sequence": "sequence",
    "at": "created_at",
    "action": "action",
    "account_id": "account_id",
    "agent_id": "agent_id",
    "session_id": "session_id",
    "user_id": "user_id",
    "subject_type": "auditable_type",
    "subject_id": "auditable_id",
    "hash": "hash",
}
# So many are read from the database at a time.
_BATCH_ROWS = 500


@pages.get("/audit/export.jsonl")
def export() -> Response:
    chosen = Chosen(FILTERS)
    # asked before the response is sent
    shows_origin, records = scope.user().may_act, visible_records(chosen, select(AuditLog))
    account = None if scope.sees_all_accounts() else scope.account_to_change()
    recorded = AuditLog.record(
        "audit_exported",
        chain=account.chain if account is not None else PLATFORM,
        subject=account,
        user=scope.user(),
        data={"format": "jsonl", "filter": chosen.as_data()},
    )
    before = records.where(AuditLog.id < recorded.id).execution_options(yield_per=_BATCH_ROWS)
    db.session.commit()
    answer = Response(
        stream_with_context(_lines(before, shows_origin)), mimetype="application/jsonl"
    )
    filename = f"audit-{clock.now():%Y-%m-%d}.jsonl"
    answer.headers["Content-Disposition"] = f"attachment; filename={filename}"
    return answer


def _lines(records: Any, shows_origin: bool) -> Iterator[str]:
    """Read while the file is sent, in a database session of its own."""
    for record in db.session.scalars(records):
        row = {name: getattr(record, attribute) for name, attribute in _ATTRIBUTES.items()}
        row |= {"at": clock.iso(record.created_at), "data": mask_ids(shown_data(record))}
        if not shows_origin:
            row["data"].pop(CLIENT_KEY, None)
        yield json.dumps(row, ensure_ascii=False, default=str) + "\n"
