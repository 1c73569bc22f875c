"""Agents that have a reason in common: how many, and the first of them by name."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import JSON, ColumnElement, func, select
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from refine.extensions import db
from refine.models.agent.agent import Agent

# How many agents of a group are named.
NAMED = 8


class Named(NamedTuple):
    """An agent in a list of a few."""

    name: str
    id: int


class Group(NamedTuple):
    """Agents that have a reason in common: how many, and the first of them by name."""

    reason: str | None
    number: int
    named: Sequence[Named]

    @property
    def unnamed(self) -> int:
        """How many are not among the first."""
        return self.number - len(self.named)


def grouped_by(
    reason: ColumnElement[str | None], *conditions: ColumnElement[bool]
) -> dict[str | None, Group]:
    """Return the agents that meet the conditions by a reason, the largest groups first."""
    each = select(reason.label("reason"), Agent.name, Agent.id).where(*conditions).subquery()
    by_name = aggregate_order_by(
        func.json_build_array(each.c.name, each.c.id), func.lower(each.c.name), each.c.id
    )
    named = func.array_agg(by_name, type_=ARRAY(JSON))
    found = (
        select(each.c.reason, func.count(), named[1:NAMED])
        .group_by(each.c.reason)
        .order_by(func.count().desc())
    )
    return {
        reason: Group(reason, number, [Named(*agent) for agent in some])
        for reason, number, some in db.session.execute(found)
    }
