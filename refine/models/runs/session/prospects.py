"""Whom a sweep of an account would ask now, why it would leave out the others, what it may cost.

In a few statements, however many agents there are, and by the figures on their rows: it is what a
person is told beforehand. ``jobs/sweeping.py`` then decides for each agent.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import JSON, ColumnElement, Select, case, func, literal, null, select
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.people import Account
from refine.models.runs.session.session import ERODED, RefinementSession
from refine.models.runs.session.totals import costs_by_model
from refine.models.runs.spending import cost_cap_reason

WAITING = "waiting for a session already"
RUNNING = "running a session just now"
NOTHING_TO_REFINE = "no core memory that a session may change"
NOT_DUE = "refined since the last slot, and within the budget"

COSTS_SINCE = timedelta(days=30)
_NAMED = 5


class Named(NamedTuple):
    """An agent in a list of a few."""

    name: str
    id: int


class Group(NamedTuple):
    """Agents that are asked, or left out for the same reason; the first of them by name."""

    agents: int
    first: list[Named]

    @property
    def others(self) -> int:
        """How many of them are not among the first."""
        return self.agents - len(self.first)


class Cost(NamedTuple):
    """What as many sessions may cost, by those of the last ``COSTS_SINCE`` with the same models.

    ``unknown`` agents have a model without such a session, or without a price.
    """

    sessions: int
    about_usd: Decimal
    at_most_usd: Decimal
    unknown: int


class Prospects(NamedTuple):
    """What a sweep would do: whom it would ask, and why not the others, most of them first."""

    asked: Group
    left_out: list[tuple[str, Group]]
    cost: Cost

    @classmethod
    def of(cls, account: Account, at: datetime) -> "Prospects":
        """Return what a sweep of the account at this moment would do."""
        groups: dict[str | None, list[tuple[str, Group]]] = defaultdict(list)
        capped = cost_cap_reason(account, at)
        for reason, model_id, agents, first in db.session.execute(_grouped(account, at)):
            if capped is not None and reason in (None, ERODED):
                reason = capped  # which the sweep asks first
            groups[reason].append((model_id, Group(agents, [Named(*each) for each in first])))
        asked = groups.pop(None, [])
        left_out = {str(reason): _joined(found) for reason, found in groups.items()}
        return cls(
            _joined(asked),
            sorted(left_out.items(), key=lambda each: -each[1].agents),
            _cost(account, at, {model_id: group.agents for model_id, group in asked}),
        )


def _grouped(account: Account, at: datetime) -> Select[*tuple[Any, ...]]:
    reason = _reason(account, at).label("reason")
    mine = select(Agent.id, Agent.name, Agent.model_id, reason).where(
        Agent.account_id == account.id
    )
    each = mine.subquery()
    by_name = aggregate_order_by(
        func.json_build_array(each.c.name, each.c.id), func.lower(each.c.name), each.c.id
    )
    first = func.array_agg(by_name, type_=ARRAY(JSON))
    grouped = select(each.c.reason, each.c.model_id, func.count(), first[1:_NAMED])
    return grouped.group_by(each.c.reason, each.c.model_id)


def _reason(account: Account, at: datetime) -> ColumnElement[str | None]:
    """Return why a sweep leaves an agent out, in its order; NULL if it does not."""
    slot_at = account.last_slot(at)
    reasons: dict[str, ColumnElement[bool]] = {
        WAITING: Agent.last_session_status == "queued",
        **Agent.obstacles(automatic=True),
        NOTHING_TO_REFINE: ~Agent.with_unlocked_core_memory(),
        NOT_DUE: ~(Agent.not_refined_since(slot_at) | Agent.over_budget),
        ERODED: RefinementSession.is_eroded(at),
        RUNNING: Agent.last_session_status == "running",
    }
    return case(*((is_so, literal(reason)) for reason, is_so in reasons.items()), else_=null())


def _joined(groups: list[tuple[str, Group]]) -> Group:
    """Return the groups of all models as one."""
    first = [named for _, group in groups for named in group.first]
    by_name = sorted(first, key=lambda named: (named.name.lower(), named.id))
    return Group(sum(group.agents for _, group in groups), by_name[:_NAMED])


def _cost(account: Account, at: datetime, asked: Mapping[str, int]) -> Cost:
    found = costs_by_model(account.id, at - COSTS_SINCE)
    priced = {each.model_id: each for each in found if each.model_id in asked}
    return Cost(
        sum(each.sessions for each in priced.values()),
        sum((asked[name] * each.average_usd for name, each in priced.items()), Decimal(0)),
        sum((asked[name] * each.highest_usd for name, each in priced.items()), Decimal(0)),
        sum(number for model_id, number in asked.items() if model_id not in priced),
    )
