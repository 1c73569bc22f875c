"""Ended runs, added up, so that metrics are quick however many runs there are."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Numeric, Select, SmallInteger, Text, cast, func, select
from sqlalchemy.orm import Mapped, mapped_column

from refine.extensions import Base
from refine.extensions.statements import plain_query


class RunSum(Base):
    """The ended runs of one kind, status, trigger and kind of error that some connections ended.

    Triggers update them, in the transaction that ends a run. Connections share a
    row if there are more of them than shards.
    """

    __tablename__ = "run_sums"

    shard: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    # ``session``, or the kind of a memory task
    kind: Mapped[str] = mapped_column(Text, primary_key=True)
    status: Mapped[str] = mapped_column(Text, primary_key=True)
    trigger: Mapped[str] = mapped_column(Text, primary_key=True)
    # empty without an error
    error_kind: Mapped[str] = mapped_column(Text, primary_key=True)
    runs: Mapped[int] = mapped_column(BigInteger)
    # the tokens that sessions removed, or the memories that tasks added
    effect: Mapped[int] = mapped_column(BigInteger)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_tokens: Mapped[int] = mapped_column(BigInteger)
    completion_tokens: Mapped[int] = mapped_column(BigInteger)
    cost_usd: Mapped[Decimal] = mapped_column(Numeric)
    unpriced_calls: Mapped[int] = mapped_column(BigInteger)


class Sums(NamedTuple):
    """All ended runs of one kind, status, trigger and kind of error, added up."""

    kind: str
    status: str
    trigger: str
    error_kind: str
    runs: int
    effect: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Decimal
    unpriced_calls: int


def ended_sums() -> Sequence[Sums]:
    """Return the sums of all ended sessions and memory tasks."""
    return [Sums(*row) for row in _ended_sums().rows()]


@plain_query
def _ended_sums() -> Select[*tuple[Any, ...]]:
    keys = (RunSum.kind, RunSum.status, RunSum.trigger, RunSum.error_kind)
    summed = [getattr(RunSum, name) for name in Sums._fields[len(keys) :]]
    totals = (cast(func.sum(column), column.type) for column in summed)
    return select(*keys, *totals).group_by(*keys)
