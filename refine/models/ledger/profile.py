"""How large and how old an agent's core memories are, without opening any."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Select, bindparam, func, literal, select, text

from refine.extensions import instant
from refine.extensions.statements import plain_query
from refine.models.ledger.memory import AgentMemory

# The least tokens of every class but the first.
SIZES = (26, 51, 101, 201, 401)
# Memories of this age in months, and older ones, are one class.
OLDEST_MONTHS = 12

_MONTH_SECONDS = 30 * 86_400


class Kept(NamedTuple):
    """How many memories of a class sessions may change, and how many are locked."""

    unlocked: int = 0
    locked: int = 0


@dataclass(frozen=True)
class Profile:
    """The kept core memories, counted by size (the classes of ``SIZES``) and by age in months."""

    sizes: Sequence[Kept]
    ages: Sequence[Kept]


def profile(agent_id: int, at: datetime) -> Profile:
    """Return how large and how old the agent's kept core memories are, in one statement.

    A month is one of 30 days.
    """
    counts: Counter[tuple[str, int, bool]] = Counter()
    for size, months, is_locked, count in _counted().rows(agent_id=agent_id, at=at):
        counts["size", size, is_locked] += count
        counts["age", months, is_locked] += count

    def kept(of: str, classes: int) -> list[Kept]:
        return [Kept(counts[of, each, False], counts[of, each, True]) for each in range(classes)]

    return Profile(kept("size", len(SIZES) + 1), kept("age", OLDEST_MONTHS + 1))


@plain_query
def _counted() -> Select[*tuple[Any, ...]]:
    size = func.width_bucket(AgentMemory.token_estimate, literal(list(SIZES)))
    seconds = func.extract("epoch", instant("at") - AgentMemory.created_at)
    months = func.greatest(func.least(func.floor(seconds / _MONTH_SECONDS), OLDEST_MONTHS), 0)
    return (
        select(size, months, AgentMemory.is_locked, func.count())
        .where(
            AgentMemory.agent_id == bindparam("agent_id", type_=BigInteger),
            AgentMemory.is_kept_core,
        )
        .group_by(text("1, 2, 3"))
    )
