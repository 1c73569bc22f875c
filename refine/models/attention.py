"""Agents that need a person: the worst of each kind, by name."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Select,
    SQLColumnExpression,
    Subquery,
    case,
    func,
    literal,
    null,
    select,
    true,
    union_all,
)

from refine.extensions.statements import plain_query
from refine.models.agent import Agent
from refine.models.agent.answered import why_model_unanswered
from refine.models.agent_list import is_in
from refine.models.columns import account_parameter
from refine.models.people import Account
from refine.models.people.account import DEMO_SLUG
from refine.models.runs.session import RefinementSession
from refine.models.runs.session.state import NEED_ATTENTION, AttentionStatus, retry_at

Kind = Literal[AttentionStatus, "over_budget"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_SHOWN = 5

_Session = RefinementSession


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
    worst = _worst_of_each_kind(is_of_account=account_id is not None)
    found: dict[Kind, list[Case]] = {kind: [] for kind in _KINDS}
    for row in worst.rows(account_id=account_id):
        each = Case(*row)
        found[each.kind].append(each)
    return found


@plain_query
def _worst_of_each_kind(*, is_of_account: bool) -> CompoundSelect[*tuple[Any, ...]]:
    account_id = account_parameter(is_of_account=is_of_account)
    of = Agent.account_id == account_id if is_of_account else true()
    return union_all(*(select(_worst(kind, of).subquery()) for kind in _KINDS))


def _worst(kind: Kind, of: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    is_about_session = kind in NEED_ATTENTION
    needs_it = of & is_in(kind)
    if is_about_session:  # as ``needs_attention`` of the session, by the figures on the agent's row
        needs_it &= Agent.last_session_seen_at.is_(None)
    order = (Agent.last_session_at if is_about_session else Agent.budget_share).desc(), Agent.id
    error_kind = Agent.last_session_error_kind if is_about_session else null()
    worst = _first_of_each_cause(needs_it, error_kind, order)
    return (
        select(
            literal(kind).label("kind"),
            worst.c.number,
            worst.c.same_cause,
            Agent.id,
            Agent.name,
            Agent.model_id,
            Account.name.label("account_name"),
            Account.slug.label("account_slug"),
            Agent.core_tokens,
            Agent.core_token_budget,
            Agent.is_available(automatic=False).label("is_available"),
            _Session.id.label("session_id"),
            _Session.end_reason,
            _Session.error_kind,
            _Session.trigger,
            _Session.attempt,
            _Session.ended_at,
        )
        .join(worst, worst.c.id == Agent.id)
        .join(Account, Account.id == Agent.account_id)
        .outerjoin(_Session, _Session.id == Agent.last_session_id)
        .order_by(*order)
    )


def _first_of_each_cause(
    needs_it: ColumnElement[bool], error_kind: SQLColumnExpression[Any], order: Sequence[Any]
) -> Subquery:
    """Return the first agents in this order, one for each cause, and how many agents share it.

    The cause is the kind of error; an agent without one has a cause of its own.
    """
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
