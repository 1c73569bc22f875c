"""Agents that have a reason in common, and the first of them by name."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Text, func, select
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
    """Agents that have a reason in common, by name; and the names of the first of them."""

    reason: str | None
    ids: Sequence[int]
    names: Sequence[str]

    @property
    def number(self) -> int:
        return len(self.ids)

    @property
    def named(self) -> list[Named]:
        """The first of them."""
        return list(map(Named, self.names, self.ids))

    @property
    def unnamed(self) -> int:
        """How many are not among the first."""
        return self.number - len(self.names)


def grouped_by(
    reason: ColumnElement[str | None], *conditions: ColumnElement[bool]
) -> dict[str | None, Group]:
    """Return the agents that meet the conditions by a reason, the largest groups first."""
    each = select(reason.label("reason"), Agent.name, Agent.id).where(*conditions).subquery()
    in_order = (func.lower(each.c.name), each.c.id)
    ids = func.array_agg(aggregate_order_by(each.c.id, *in_order), type_=ARRAY(BigInteger))
    names = func.array_agg(aggregate_order_by(each.c.name, *in_order), type_=ARRAY(Text))
    found = (
        select(each.c.reason, ids, names[1:NAMED])
        .group_by(each.c.reason)
        .order_by(func.count().desc())
    )
    return {group.reason: group for group in map(Group._make, db.session.execute(found))}
