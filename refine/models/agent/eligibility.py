"""The rules for starting runs of an agent: in Python for one, in SQL for many, side by side."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Text,
    and_,
    case,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from refine import clock, settings
from refine.extensions import db
from refine.models.agent.agent import ERASED, Agent
from refine.models.keys import WrappedKey
from refine.models.ledger.memory import AgentMemory
from refine.models.people import Account
from refine.models.people.account import DEMO_SLUG
from refine.rules.model_names import REHEARSAL_PREFIX, is_rehearsal_model

# Why the clock or a sweep queues a session.
AutomaticTrigger = Literal["weekly", "over_budget"]

# Why an agent may not be asked.
NOT_ACTIVE = "the agent is not active"
PAUSED = "the agent is paused"
ACCOUNT_PAUSED = "its account is paused"
# How many agents of a group are named.
_NAMED = 8
# Why no server answers for its model.
NO_KEY = "no API key is set"
NOT_REHEARSED = "the rehearsal model answers only agents of the demo account"


# -- may it be asked at all? ----------------------------------------------------------------------


def unavailable_reason(agent: Agent, *, automatic: bool) -> str | None:
    """Return why no run may start, or None; pauses stop only ``automatic`` runs."""
    if not agent.active:
        return NOT_ACTIVE
    if agent.is_erased:
        return ERASED
    if automatic and agent.paused:
        return PAUSED
    if automatic and agent.account.paused:
        return ACCOUNT_PAUSED
    return None


def obstacles(*, automatic: bool) -> dict[str, ColumnElement[bool]]:
    """Return each ``unavailable_reason``, in its order, with its SQL condition."""
    # looked up for each agent; EXISTS would read the keys of all, however few agents are listed
    key = select(WrappedKey.wrapped.is_(None)).where(WrappedKey.id == Agent.data_key_id)
    by_hand = {NOT_ACTIVE: ~Agent.active, ERASED: key.correlate(Agent).scalar_subquery()}
    if not automatic:
        return by_hand
    account_paused = exists().where(Account.id == Agent.account_id, Account.paused)
    return by_hand | {PAUSED: and_(Agent.paused), ACCOUNT_PAUSED: account_paused.correlate(Agent)}


def is_available(*, automatic: bool) -> ColumnElement[bool]:
    return and_(*map(not_, obstacles(automatic=automatic).values()))


def is_readable() -> ColumnElement[bool]:
    return not_(obstacles(automatic=False)[ERASED])


def first_of(reasons: Mapping[str, ColumnElement[bool]]) -> ColumnElement[str | None]:
    """Return the first of these reasons that holds; NULL if none does."""
    return case(*((holds, literal(reason)) for reason, holds in reasons.items()))


# -- does a server answer for its model? ----------------------------------------------------------

# Where none does, every session fails, so pages do not offer one. Sessions of the schedule, of
# sweeps, of the API and of the command line are tried all the same: they say what is missing.


def why_unanswered(agent: Agent) -> str | None:
    """Return why no server answers for the agent's model; None if one does."""
    current, is_rehearsal = settings.current(), is_rehearsal_model(agent.model_id)
    if is_rehearsal and current.rehearses(is_demo=agent.account.is_demo):
        return None
    if current.openrouter_api_key is None:
        return NO_KEY
    return NOT_REHEARSED if is_rehearsal else None


def unanswered() -> dict[str, ColumnElement[bool]]:
    """Return each reason of ``why_unanswered`` with its SQL condition, by the current settings."""
    current = settings.current()
    names_rehearsal = Agent.model_id.startswith(REHEARSAL_PREFIX, autoescape=True)
    is_demo = Agent.account_id.in_(select(Account.id).where(Account.slug == DEMO_SLUG))
    may_rehearse = or_(literal(current.rehearses(is_demo=False)), is_demo)
    if current.openrouter_api_key is None:
        return {NO_KEY: not_(and_(names_rehearsal, may_rehearse))}
    return {NOT_REHEARSED: and_(names_rehearsal, not_(may_rehearse))}


# -- is there anything to refine? -----------------------------------------------------------------


def has_unlocked_core_memory(agent: Agent) -> bool:
    unlocked = agent.ledger.core().where(~AgentMemory.is_locked).limit(1)
    return db.session.scalar(unlocked) is not None


def with_unlocked_core_memory() -> ColumnElement[bool]:
    return exists().where(
        AgentMemory.agent_id == Agent.id, AgentMemory.is_kept_core, ~AgentMemory.is_locked
    )


def is_refinable() -> ColumnElement[bool]:
    return and_(is_available(automatic=True), with_unlocked_core_memory())


# -- is a session due? ----------------------------------------------------------------------------


def needs_refinement(agent: Agent, at: datetime | None = None) -> bool:
    """Tell whether a session is due: for the account's last slot, or over the budget."""
    due = is_refinable() & is_due_since(agent.account.last_slot(at or clock.now()))
    return db.session.scalar(select(Agent.id).where(Agent.id == agent.id, due)) is not None


Agent.needs_refinement = needs_refinement


def is_due_since(slot_at: datetime) -> ColumnElement[bool]:
    """Match agents, if they may be refined, of which a session is due since their last slot."""
    return not_refined_since(slot_at) | Agent.over_budget


def not_refined_since(slot_at: datetime) -> ColumnElement[bool]:
    return Agent.last_refinement_at.is_(None) | (Agent.last_refinement_at < slot_at)


def next_session_at(agent: Agent) -> datetime | None:
    is_served = unavailable_reason(agent, automatic=True) is None
    return agent.account.next_due_at if is_served else None


# -- agents by a reason ---------------------------------------------------------------------------


class Group(NamedTuple):
    """Agents with one reason in common, and the names of the first of them."""

    reason: str | None
    ids: Sequence[int]
    names: Sequence[str]

    @property
    def number(self) -> int:
        return len(self.ids)

    @property
    def named(self) -> list[tuple[int, str]]:
        return list(zip(self.ids, self.names, strict=False))

    @property
    def unnamed(self) -> int:
        return self.number - len(self.names)


def grouped_by(
    reason: ColumnElement[str | None], *conditions: ColumnElement[bool]
) -> dict[str | None, Group]:
    """Group the matching agents by a reason, the largest groups first."""
    each = select(reason.label("reason"), Agent.name, Agent.id).where(*conditions).subquery()
    in_order = (func.lower(each.c.name), each.c.id)
    ids = func.array_agg(aggregate_order_by(each.c.id, *in_order), type_=ARRAY(BigInteger))
    names = func.array_agg(aggregate_order_by(each.c.name, *in_order), type_=ARRAY(Text))
    found = (
        select(each.c.reason, ids, names[1:_NAMED])
        .group_by(each.c.reason)
        .order_by(func.count().desc())
    )
    return {group.reason: group for group in map(Group._make, db.session.execute(found))}
