"""How often something happened, counted by all processes together."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import BigInteger, Text, case, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column

from refine import clock
from refine.extensions import Base, db


@dataclass(frozen=True)
class Counted:
    """A count, and when it starts over; None: never."""

    count: int
    ends_at: datetime | None


class SharedCount(Base):
    """One count. It starts over once ``ends_at`` has passed; without one, it never does."""

    __tablename__ = "shared_counts"

    key: Mapped[str] = mapped_column(Text, primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    ends_at: Mapped[datetime | None] = mapped_column(index=True)

    @classmethod
    def add(
        cls,
        keys: Iterable[str],
        *,
        lasts: timedelta | None = None,
        step: int = 1,
        at: datetime | None = None,
    ) -> dict[str, Counted]:
        """Add ``step`` to each count, return the new counts, never below 0. One statement, so that
        parallel requests never see the same count; keys are locked in order.
        """
        at = at or clock.now()
        ends_at = at + lasts if lasts is not None else None
        rows = [
            {"key": key, "count": max(step, 0), "ends_at": ends_at} for key in sorted(set(keys))
        ]
        new = insert(cls).values(rows)
        is_over = func.coalesce(cls.ends_at <= at, False)
        counted = new.on_conflict_do_update(
            index_elements=[cls.key],
            set_={
                "count": case(
                    (is_over, new.excluded.count), else_=func.greatest(cls.count + step, 0)
                ),
                "ends_at": case((is_over, new.excluded.ends_at), else_=cls.ends_at),
            },
        ).returning(cls.key, cls.count, cls.ends_at)
        return {key: Counted(count, until) for key, count, until in db.session.execute(counted)}

    @classmethod
    def totals(cls, prefix: str) -> dict[str, int]:
        """Return lasting counts by what follows ``prefix`` in their keys."""
        lasting = select(cls.key, cls.count).where(
            cls.key.startswith(prefix, autoescape=True), cls.ends_at.is_(None)
        )
        return {key.removeprefix(prefix): count for key, count in db.session.execute(lasting)}

    @classmethod
    def delete_ended(cls, at: datetime) -> None:
        ended = select(cls.key).where(cls.ends_at <= at).with_for_update(skip_locked=True)
        db.session.execute(delete(cls).where(cls.key.in_(ended)))
