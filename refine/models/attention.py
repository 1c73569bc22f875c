"""Agents that need a person: the worst of each kind, by name."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Subquery, case, func, null, select, true

from refine.extensions import db
from refine.models.agent import Agent, eligibility
from refine.models.agent.eligibility import why_model_unanswered
from refine.models.agent_list import is_in
from refine.models.people import Account
from refine.models.people.account import DEMO_SLUG
from refine.models.runs.session import RefinementSession
from refine.models.runs.session.state import NEED_ATTENTION, AttentionStatus, retry_at

Kind = Literal[AttentionStatus, "over_budget"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_SHOWN = 5


class Case(NamedTuple):
    """An agent that needs attention: for its budget, or for its last session.

    ``number`` agents need it for the same reason; the last sessions of ``same_cause`` of them ended
    with the same kind of error, and it stands for all these. Sessions that somebody acknowledged do
    not count.
    """

    kind: Kind
    number: int
    same_cause: int
    agent_id: int
    agent_name: str
    model_id: str
    account_name: str
    account_slug: str
    core_tokens: int
    core_token_budget: int
    is_available: bool
    session_id: UUID | None
    end_reason: str | None
    error_kind: str | None
    trigger: str | None
    attempt: int
    ended_at: datetime | None

    @property
    def is_about_budget(self) -> bool:
        """Whether the agent has more tokens than its budget, regardless of its sessions."""
        return self.kind == "over_budget"

    @property
    def is_shared(self) -> bool:
        """Whether it stands for several agents."""
        return self.same_cause > 1

    @property
    def can_be_asked(self) -> bool:
        """Whether a session of the agent could run."""
        is_demo = self.account_slug == DEMO_SLUG
        is_answered = why_model_unanswered(self.model_id, is_demo=is_demo) is None
        return self.is_available and is_answered

    @property
    def next_attempt_at(self) -> datetime | None:
        """When a session that failed is tried again, at the earliest; None if it is not."""
        if self.kind != "failed" or self.ended_at is None:
            return None
        return retry_at(self.trigger, self.attempt, self.ended_at)


def cases(account_id: int | None) -> dict[Kind, list[Case]]:
    """Return the worst cases of each kind, among agents (of this account).

    Those who are furthest over their budgets; the latest sessions.
    """
    of = true() if account_id is None else Agent.account_id == account_id
    return {
        kind: [Case(kind, *row) for row in db.session.execute(_worst(kind, of))] for kind in _KINDS
    }


def _worst(kind: Kind, of: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    is_about_session = kind in NEED_ATTENTION
    needs_it = of & is_in(kind)
    if is_about_session:  # as ``needs_attention`` of the session, by the figures on the agent's row
        needs_it &= Agent.last_session_seen_at.is_(None)
    order = (Agent.last_session_at if is_about_session else Agent.budget_share).desc(), Agent.id
    worst = _first_of_each_cause(needs_it, is_about_session, order)
    last = RefinementSession
    return (
        select(
            worst.c.number,
            worst.c.same_cause,
            Agent.id,
            Agent.name,
            Agent.model_id,
            Account.name,
            Account.slug,
            Agent.core_tokens,
            Agent.core_token_budget,
            eligibility.is_available(automatic=False),
            last.id,
            last.end_reason,
            last.error_kind,
            last.trigger,
            last.attempt,
            last.ended_at,
        )
        .join(worst, worst.c.id == Agent.id)
        .join(Account, Account.id == Agent.account_id)
        .outerjoin(last, last.id == Agent.last_session_id)
        .order_by(*order)
    )


def _first_of_each_cause(
    needs_it: ColumnElement[bool], is_about_session: bool, order: Sequence[Any]
) -> Subquery:
    """Return the first agents in this order, one for each cause, and how many agents share it.

    The cause is the kind of error; an agent without one has a cause of its own.
    """
    error_kind = Agent.last_session_error_kind if is_about_session else null()
    cause = (error_kind, case((error_kind.is_(None), Agent.id)))
    counted = (
        select(
            Agent.id,
            func.count().over().label("number"),
            func.count().over(partition_by=cause).label("same_cause"),
            func.row_number().over(partition_by=cause, order_by=order).label("place"),
        )
        .where(needs_it)
        .subquery()
    )
    first = select(counted).join(Agent, Agent.id == counted.c.id).where(counted.c.place == 1)
    return first.order_by(*order).limit(_SHOWN).subquery()
