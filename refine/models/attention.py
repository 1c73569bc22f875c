"""Agents that need a person: why, and which of them somebody put aside."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    Row,
    Select,
    and_,
    any_,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, aliased, joinedload, mapped_column, relationship

from refine import clock
from refine.extensions import Base, db
from refine.models.agent import Agent
from refine.models.audit import AuditLog, Event
from refine.models.columns import AccountId, in_ids
from refine.models.people import User
from refine.models.runs.run import LIVE
from refine.models.runs.session.scheduling import why_not_on_request
from refine.models.runs.session.session import ERODED, RefinementSession
from refine.models.runs.session.totals import Stuck, is_stuck, stuck_above_budget
from refine.models.runs.task import MemoryTask, given_up_since

# Worst first; an agent is listed once, for the worst of its reasons.
Kind = Literal["failed", "given_up", "rolled_back", "stuck", "over_budget", "declined"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_ABOUT_BUDGET: tuple[Kind, ...] = ("stuck", "over_budget")
# Conversations that were given up earlier need no attention.
_LOST_WITHIN = timedelta(days=1)
_SHOWN = 10


class PutAside(Base):
    """Says that somebody took an agent off the list: ``until`` then, or until it happens again."""

    __tablename__ = "put_aside"

    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    at: Mapped[datetime]
    until: Mapped[datetime | None]

    user: Mapped[User] = relationship()


class Case(NamedTuple):
    """An agent that needs a person. ``cause``: its kind and, of failed sessions, the kind of error;
    ``number`` agents have it. ``why_not``: why no session can be asked for.
    """

    cause: str
    number: int
    conversations: int | None
    why_not: str | None
    agent: Agent
    session: RefinementSession | None
    stuck: Stuck | None = None

    @property
    def kind(self) -> str:
        return self.cause.partition(":")[0]

    @property
    def is_about_budget(self) -> bool:
        return self.kind in _ABOUT_BUDGET

    @property
    def is_about_conversations(self) -> bool:
        return self.kind == "given_up"


# -- why -----------------------------------------------------------------------------------------

_Reasons = dict[Kind, ColumnElement[bool]]


def is_over_budget() -> ColumnElement[bool]:
    return Agent.over_budget & Agent.active


def _reasons(at: datetime) -> tuple[_Reasons, _Reasons]:
    """Return the conditions of all kinds, and of those that are not put aside."""
    status, ended = Agent.last_session_status, Agent.last_session_ended_at
    waits = is_over_budget() & status.in_(LIVE).is_not(true())
    given_up = given_up_since(at - _LOST_WITHIN)
    lost = select(MemoryTask.agent_id).where(given_up).scalar_subquery()
    lost_at = select(func.max(MemoryTask.ended_at)).where(_of_agent(given_up))
    since: dict[Kind, tuple[ColumnElement[bool], Any]] = {
        "failed": (status == "failed", ended),
        "given_up": (
            # as an array, so that all agents with a reason can be found by indexes
            Agent.id == any_(func.array(lost)),
            lost_at.correlate(Agent).scalar_subquery(),
        ),
        "rolled_back": (status == "rolled_back", ended),
        "stuck": (waits & is_stuck(), Agent.over_budget_since),
        "over_budget": (waits, Agent.over_budget_since),
        "declined": (status == "declined", ended),
    }
    every = {kind: is_so for kind, (is_so, _) in since.items()}
    return every, {kind: is_so & ~_is_aside(began, at) for kind, (is_so, began) in since.items()}


def _of_agent(given_up: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(MemoryTask.agent_id == Agent.id, given_up)


def _is_aside(since: ColumnElement[datetime], at: datetime) -> ColumnElement[bool]:
    """Match what is put aside: a snooze ends at its time, all else when it happens again."""
    holds = case((PutAside.until.is_(None), since <= PutAside.at), else_=PutAside.until > at)
    return exists().where(PutAside.agent_id == Agent.id, holds).correlate(Agent)


def _any_of(reasons: _Reasons) -> ColumnElement[bool]:
    # whoever is stuck is over its budget: to ask for that, too, would read sessions
    return or_(*(is_so for kind, is_so in reasons.items() if kind != "stuck"))


def _worst(reasons: _Reasons) -> ColumnElement[str]:
    failed = func.concat_ws(":", "failed", Agent.last_session_error_kind)
    named: dict[Kind, Any] = {kind: literal(kind) for kind in reasons} | {"failed": failed}
    return case(*((is_so, named[kind]) for kind, is_so in reasons.items())).label("cause")


# -- finding -------------------------------------------------------------------------------------


def cases(account_id: AccountId) -> list[list[Case]]:
    """Return the worst cases of each cause: furthest over budget, or latest session."""
    at = clock.now()
    first = db.session.execute(_first_of_each_cause(account_id, at)).all()
    # asked about these few by id: planned with the rest, it would read the memories of all agents
    known = {row.Agent.id: row for row in db.session.execute(_about(first, at))}
    stuck = stuck_above_budget([row.id for row in first if row.cause == "stuck"])
    found = [Case(*row[:2], *known[row.id])._replace(stuck=stuck.get(row.id)) for row in first]
    groups = [list(group) for _, group in groupby(found, attrgetter("cause"))]
    return sorted(groups, key=lambda group: (KINDS.index(group[0].kind), -group[0].number))


def _first_of_each_cause(account_id: AccountId, at: datetime) -> Select[*tuple[Any, ...]]:
    _, waiting = _reasons(at)
    share_of = Agent.budget_share.label("share")
    every = select(Agent.id, _worst(waiting), share_of, Agent.last_session_at)
    those = every.where(_in_account(account_id), _any_of(waiting))
    # computed once, not again wherever the cause is used
    each = those.cte("cases").prefix_with("MATERIALIZED")
    share = case((each.c.cause.in_(_ABOUT_BUDGET), each.c.share))
    order = [share.desc().nulls_last(), each.c.last_session_at.desc().nulls_last(), each.c.id]
    place = func.row_number().over(partition_by=each.c.cause, order_by=order).label("place")
    number = func.count().over(partition_by=each.c.cause).label("number")
    c = select(each.c.id, each.c.cause, number, place).subquery().c
    return select(c.cause, c.number, c.id).where(c.place <= _SHOWN).order_by(c.cause, c.place)


def _about(found: Sequence[Row[*tuple[Any, ...]]], at: datetime) -> Select[*tuple[Any, ...]]:
    """Select what else a ``Case`` tells of these agents."""
    over_budget = [row.id for row in found if row.cause in _ABOUT_BUDGET]
    lost = select(func.count()).where(_of_agent(given_up_since(at - _LOST_WITHIN)))
    eroded = and_(in_ids(Agent.id, over_budget), RefinementSession.is_eroded(at))
    why_not = case((eroded, literal(ERODED)), else_=why_not_on_request())
    last = aliased(RefinementSession)  # conditions look for others
    return (
        select(lost.correlate(Agent).scalar_subquery(), why_not, Agent, last)
        .outerjoin(last, last.id == Agent.last_session_id)
        .where(in_ids(Agent.id, [row.id for row in found]))
        .options(joinedload(Agent.account, innerjoin=True))
    )


def _in_account(account_id: AccountId) -> ColumnElement[bool]:
    return true() if account_id is None else Agent.account_id == account_id


def number_waiting(account_id: AccountId) -> int:
    """Return how many agents need a person."""
    return _number(has_cause(), _in_account(account_id))


def number_put_aside(account_id: AccountId) -> int:
    if db.session.scalar(select(PutAside.agent_id).limit(1)) is None:
        return 0  # as mostly
    return _number(_in_account(account_id), is_put_aside())


def _number(*conditions: ColumnElement[bool]) -> int:
    return db.session.scalars(select(func.count(Agent.id)).where(*conditions)).one()


def by_account(account_id: AccountId) -> Sequence[Row[*tuple[Any, ...]]]:
    """Return how many agents of each account need a person, by cause, worst first."""
    _, waiting = _reasons(clock.now())
    those = select(Agent.account_id, _worst(waiting)).where(_any_of(waiting))
    c = those.where(_in_account(account_id)).subquery().c
    counted = select(c.account_id, c.cause, func.count().label("number"))
    rows = db.session.execute(counted.group_by(c.account_id, c.cause)).all()
    return sorted(
        rows, key=lambda row: (KINDS.index(row.cause.partition(":")[0]), -row.number, row.cause)
    )


def agents_by_cause() -> Sequence[Row[*tuple[Any, ...]]]:
    """Return the accounts, causes and ids of all agents that need a person."""
    _, waiting = _reasons(clock.now())
    those = select(Agent.account_id, _worst(waiting), Agent.id).where(_any_of(waiting))
    return db.session.execute(those).all()


def has_cause(cause: str | None = None) -> ColumnElement[bool]:
    """Match agents that need a person, for this cause or any, and are not put aside."""
    _, waiting = _reasons(clock.now())
    return _any_of(waiting) if cause is None else and_(_any_of(waiting), _worst(waiting) == cause)


def urgency() -> ColumnElement[int]:
    """Return the place of an agent's worst reason; those that need nobody are last."""
    _, waiting = _reasons(clock.now())
    del waiting["stuck"]
    return case(*((waiting[kind], place) for place, kind in enumerate(waiting)), else_=len(KINDS))


def is_put_aside() -> ColumnElement[bool]:
    every, waiting = map(_any_of, _reasons(clock.now()))
    return and_(every, waiting.is_not(true()))


def put_aside_now(account_id: AccountId) -> Select[*tuple[Any, ...]]:
    """Select agents that are put aside, with what is put aside and by whom, the latest first."""
    every, _ = _reasons(clock.now())
    return (
        select(Agent, PutAside, _worst(every))
        .join(PutAside, PutAside.agent_id == Agent.id)
        .where(_in_account(account_id), is_put_aside())
        .options(joinedload(Agent.account, innerjoin=True), joinedload(PutAside.user))
        .order_by(PutAside.at.desc(), Agent.id)
    )


class State(NamedTuple):
    """Whether an agent waits for a person, and who put it aside, if anybody."""

    is_waiting: bool
    put_aside: PutAside | None


def state_of(agent: Agent) -> State | None:
    """Return None of an agent that needs nobody."""
    every, waiting = map(_any_of, _reasons(clock.now()))
    mine = select(waiting, PutAside).select_from(Agent).outerjoin(PutAside).where(every)
    found = db.session.execute(mine.where(Agent.id == agent.id)).one_or_none()
    return State(*found) if found is not None else None


# -- putting aside -------------------------------------------------------------------------------


def put_aside(
    agents: Collection[Agent],
    until: Callable[[Agent], datetime | None],
    *,
    user: User,
    at: datetime,
) -> set[int]:
    """Put those of these locked agents aside that need a person; return their ids."""
    _, waiting = _reasons(at)
    return _set(_worst(waiting), _any_of(waiting), agents, until, user, at)


def take_back(agents: Collection[Agent], *, user: User, at: datetime) -> set[int]:
    """Bring those of these locked agents back that are put aside; return their ids."""
    every, _ = _reasons(at)
    return _set(_worst(every), is_put_aside(), agents, lambda agent: at, user, at)


def _set(
    cause: ColumnElement[str],
    condition: ColumnElement[bool],
    agents: Collection[Agent],
    until: Callable[[Agent], datetime | None],
    user: User,
    at: datetime,
) -> set[int]:
    mine = in_ids(Agent.id, [agent.id for agent in agents])
    found = db.session.execute(select(Agent.id, cause).where(mine, condition))
    causes: dict[int, str] = {row.id: row.cause for row in found}
    rows, events_of = [], []
    for agent in agents:
        if (reason := causes.get(agent.id)) is not None:
            ends_at = until(agent)
            rows.append({"agent_id": agent.id, "user_id": user.id, "at": at, "until": ends_at})
            data = {"cause": reason, "until": clock.iso(ends_at)}
            about: dict[str, Any] = {"user": user, "subject": agent, "data": data}
            events_of.append((agent.chain, [Event(_action(ends_at, at), **about)]))
    if rows:
        new = insert(PutAside).values(rows)
        changed = {name: new.excluded[name] for name in ("user_id", "at", "until")}
        db.session.execute(new.on_conflict_do_update(index_elements=["agent_id"], set_=changed))
        AuditLog.record_all(events_of, at=at)
    return set(causes)


def _action(until: datetime | None, at: datetime) -> str:
    if until is None:
        return "attention_acknowledged"
    return "attention_snoozed" if until > at else "attention_taken_back"
