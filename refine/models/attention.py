"""Agents that need a person: the worst of each kind, by name."""

from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Select,
    func,
    literal,
    select,
    true,
    union_all,
)

from refine.extensions.statements import plain_query
from refine.models.agent import Agent
from refine.models.agent_list import is_in
from refine.models.columns import account_parameter
from refine.models.people import Account
from refine.models.runs.session import RefinementSession
from refine.models.runs.session.state import NEED_ATTENTION, AttentionStatus, retry_at

Kind = Literal[AttentionStatus, "over_budget"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_SHOWN = 5

_Session = RefinementSession


class Case(NamedTuple):
    """An agent that needs attention: for its budget, or for its last session.

    ``number`` agents need it for the same reason. Sessions that somebody acknowledged do not count.
    """

    kind: Kind
    number: int
    agent_id: int
    agent_name: str
    account_name: str
    core_tokens: int
    core_token_budget: int
    can_be_asked: bool
    session_id: UUID | None
    end_reason: str | None
    trigger: str | None
    attempt: int
    ended_at: datetime | None

    @property
    def is_about_budget(self) -> bool:
        """Whether the agent has more tokens than its budget, regardless of its sessions."""
        return self.kind == "over_budget"

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
        case = Case(*row)
        found[case.kind].append(case)
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
    worst = (
        select(Agent.id, func.count().over().label("number"))
        .where(needs_it)
        .order_by(*order)
        .limit(_SHOWN)
        .subquery()
    )
    return (
        select(
            literal(kind).label("kind"),
            worst.c.number,
            Agent.id,
            Agent.name,
            Account.name.label("account_name"),
            Agent.core_tokens,
            Agent.core_token_budget,
            Agent.is_available(automatic=False).label("can_be_asked"),
            _Session.id.label("session_id"),
            _Session.end_reason,
            _Session.trigger,
            _Session.attempt,
            _Session.ended_at,
        )
        .join(worst, worst.c.id == Agent.id)
        .join(Account, Account.id == Agent.account_id)
        .outerjoin(_Session, _Session.id == Agent.last_session_id)
        .order_by(*order)
    )
