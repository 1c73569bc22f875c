"""When the clock last did something: what a tick must remember from one minute to the next."""

from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import BigInteger, Text, case, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column

from refine import clock
from refine.extensions import Base, db

Event = Literal["tick", "budget_check"]


class ClockMark(Base):
    """The latest instant of one kind of event, the same for every clock and worker."""

    __tablename__ = "clock_marks"

    event: Mapped[str] = mapped_column(Text, primary_key=True)
    at: Mapped[datetime]
    after_id: Mapped[int | None] = mapped_column(BigInteger)

    @classmethod
    def note(cls, event: Event, at: datetime) -> None:
        """Mark that the event was now."""
        mark = insert(cls).values(event=event, at=at)
        db.session.execute(mark.on_conflict_do_update(index_elements=[cls.event], set_={"at": at}))

    @classmethod
    def begin(cls, event: Event, *, every: timedelta, at: datetime) -> int | None:
        """Begin a round, or go on with one that is under way; None where none is due yet.

        Returns the id behind which it goes on, 0 at its beginning; ``reached`` says how far it got.
        """
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
        """Note how far the round got; None: to its end."""
        db.session.execute(update(cls).where(cls.event == event).values(after_id=after_id))

    @classmethod
    def age(cls, event: Event, at: datetime | None = None) -> timedelta | None:
        """Return how long ago the event was; None if it never was."""
        last = db.session.scalar(select(cls.at).where(cls.event == event))
        return (at or clock.now()) - last if last is not None else None
