"""Pulses: what the ticks of the last day found, for the lines on a page."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, CheckConstraint, Select, SmallInteger, cast, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column

from refine.extensions import Base, db, instant
from refine.extensions.statements import plain_query
from refine.models.runs.clock_mark import ClockMark
from refine.models.runs.workload import Workload

KEPT_FOR = timedelta(days=1)
SPAN = timedelta(minutes=10)

_MINUTES_OF_A_DAY = 1440


class Pulse(Base):
    """What one tick found. Each minute of the day has a row, which is overwritten every day.

    ``pause_seconds`` is the time since the tick before; ``workers`` is None without Redis.
    """

    __tablename__ = "pulses"
    __table_args__ = (
        CheckConstraint(f"minute BETWEEN 0 AND {_MINUTES_OF_A_DAY - 1}", name="minute"),
    )

    minute: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    pause_seconds: Mapped[int]
    waiting: Mapped[int]
    waiting_seconds: Mapped[int]
    running: Mapped[int]
    workers: Mapped[int | None]
    silent_workers: Mapped[int | None]

    @classmethod
    def take(cls, at: datetime, *, workers: int | None, silent_workers: int | None) -> None:
        """Note what there is at a tick, before the tick itself is noted."""
        load, pause = Workload.at(at), ClockMark.age("tick", at) or timedelta(0)
        oldest = min(filter(None, (load.sessions_since, load.tasks_since)), default=at)
        values = {
            "minute": int(at.timestamp() // 60) % _MINUTES_OF_A_DAY,
            "at": at,
            "pause_seconds": _seconds(pause),
            "waiting": load.sessions + load.reflections + load.conversations,
            "waiting_seconds": _seconds(at - oldest),
            "running": load.sessions_running + load.tasks_running,
            "workers": workers,
            "silent_workers": silent_workers,
        }
        taken = insert(cls).values(values)
        db.session.execute(taken.on_conflict_do_update(index_elements=[cls.minute], set_=values))

    @classmethod
    def last(cls) -> Any:
        """Return the row of the latest one; None if there is none."""
        return next(iter(_last().rows()), None)


@plain_query
def _last() -> Select[*tuple[Any, ...]]:
    return select(*Pulse.__table__.columns).order_by(Pulse.at.desc()).limit(1)


class Span(NamedTuple):
    """The highest value of each figure in the pulses of ten minutes; of the workers, the lowest.

    ``number`` counts the spans since 1970.
    """

    number: int
    last_at: datetime
    pause_seconds: int
    waiting: int
    waiting_seconds: int
    workers: int | None


def spans(until: datetime) -> list[Span | None]:
    """Return the last day in spans of ten minutes, the oldest first; None: the clock was away."""
    rows = _spans().rows(since=until - KEPT_FOR)
    found = {span.number: span for span in (Span(*row) for row in rows)}
    last = int(until.timestamp() // SPAN.total_seconds())
    return [found.get(last - back) for back in reversed(range(KEPT_FOR // SPAN))]


@plain_query
def _spans() -> Select[*tuple[Any, ...]]:
    epoch = func.extract("epoch", Pulse.at)
    number = cast(func.floor(epoch / SPAN.total_seconds()), BigInteger)
    figures = (Pulse.pause_seconds, Pulse.waiting, Pulse.waiting_seconds)
    return (
        select(
            number,
            func.max(Pulse.at),
            *(func.max(figure) for figure in figures),
            func.min(Pulse.workers),
        )
        .where(Pulse.at > instant("since"))
        .group_by(number)
    )


def _seconds(span: timedelta) -> int:
    return max(0, int(span.total_seconds()))
