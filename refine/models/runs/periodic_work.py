"""When periodic work last happened, and how far it got."""

from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import BigInteger, Text, case, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column

from refine import clock
from refine.extensions import Base, db

# The clock ticks every minute; after this long it has stopped, or is badly delayed.
TICK_IS_LATE_AFTER = timedelta(minutes=5)

Event = Literal["tick", "ticking", "budget_check", "pruning", "erasing", "worker", "notices"]

# Ticks further apart are a gap: the clock was away, or the database restored from a backup.
_GAP = timedelta(minutes=10)


class PeriodicWork(Base):
    """When one kind of event last happened, shared by every clock and worker."""

    __tablename__ = "periodic_work"

    event: Mapped[str] = mapped_column(Text, primary_key=True)
    at: Mapped[datetime]
    after_id: Mapped[int | None] = mapped_column(BigInteger)

    @classmethod
    def note(cls, event: Event, at: datetime) -> None:
        mark = insert(cls).values(event=event, at=at)
        db.session.execute(mark.on_conflict_do_update(index_elements=[cls.event], set_={"at": at}))

    @classmethod
    def begin(cls, event: Event, *, every: timedelta, at: datetime) -> int | None:
        """Return the id after which the round continues, 0 for a new one; None if none is due."""
        mark = insert(cls).values(event=event, at=at, after_id=0)
        is_due = (cls.at <= at - every) | (cls.at > at) | cls.after_id.is_not(None)
        begun = mark.on_conflict_do_update(
            index_elements=[cls.event],
            set_={
                "at": case((cls.after_id.is_(None), at), else_=cls.at),
                "after_id": func.coalesce(cls.after_id, 0),
            },
            where=is_due,
        ).returning(cls.after_id)
        return db.session.scalar(begun)

    @classmethod
    def reached(cls, event: Event, after_id: int | None) -> None:
        """Note how far the round got; None: it is finished."""
        db.session.execute(update(cls).where(cls.event == event).values(after_id=after_id))

    @classmethod
    def note_tick(cls, at: datetime) -> None:
        """Note a tick and, of the first after a gap, since when they come without one."""
        if cls._is_after_gap(at):
            cls.note("ticking", at)
        cls.note("tick", at)

    @classmethod
    def has_ticked_for(cls, span: timedelta, at: datetime) -> bool:
        """Tell whether ticks have come without a gap for that long."""
        since = cls.age("ticking", at)
        return since is not None and since >= span and not cls._is_after_gap(at)

    @classmethod
    def _is_after_gap(cls, at: datetime) -> bool:
        age = cls.age("tick", at)
        return age is None or abs(age) > _GAP

    @classmethod
    def age(cls, event: Event, at: datetime | None = None) -> timedelta | None:
        last = db.session.scalar(select(cls.at).where(cls.event == event))
        return None if last is None else (at or clock.now()) - last

    @classmethod
    def is_silent(cls, event: Event, at: datetime) -> bool:
        """Tell whether it once happened, but not for long."""
        age = cls.age(event, at)
        return age is not None and age > TICK_IS_LATE_AFTER
