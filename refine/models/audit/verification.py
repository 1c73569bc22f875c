"""Outcomes of verifications, for pages and monitors."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, ForeignKey, Text, and_, func, or_, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, mapped_column

from refine import clock
from refine.errors import RowAltered
from refine.extensions import Base, db
from refine.models.audit.record import PLATFORM, Actor, AuditLog
from refine.models.columns import BigId, Count
from refine.models.keys import WrappedKey
from refine.rules.quantities import plural, rough_span

# How often the clock verifies everything.
VERIFIED_EVERY = timedelta(days=1)
# When verification counts as late: this long after the last one finished.
IS_LATE_AFTER = timedelta(days=3)

BegunBy = Literal["clock", "command"]


@dataclass(frozen=True)
class ChainResult:
    """The outcome of verifying one chain; ``problem``: the first one found."""

    name: str
    records: int
    memories: int
    problem: str | None
    chain_id: int | None = None


AlarmKind = Literal["failed", "late"]


@dataclass(frozen=True)
class Alarm:
    kind: AlarmKind
    alarm_text: str
    first_problem: str | None = None


class Watch(NamedTuple):
    alarm: Alarm | None
    last: "Verification | None"


class Verification(Base):
    """One verification of everything, with its progress and its first problem."""

    __tablename__ = "verifications"

    id: Mapped[BigId]
    begun_by: Mapped[str] = mapped_column(Text)
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    # the id of the last chain that was verified
    after_chain_id: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    chains: Mapped[Count]
    records: Mapped[Count]
    memories: Mapped[Count]
    problems: Mapped[Count]
    first_problem: Mapped[str | None] = mapped_column(Text)
    seen_at: Mapped[datetime | None]
    seen_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))

    @classmethod
    def begin(cls, begun_by: BegunBy, at: datetime) -> "Verification":
        begun = cls(begun_by=begun_by, started_at=at, after_chain_id=0)
        begun.chains = begun.records = begun.memories = begun.problems = 0
        return begun

    @classmethod
    def due(cls, at: datetime) -> "Verification | None":
        """Return the clock's unfinished verification, or a new one if due; None otherwise."""
        recent = cls.started_at.between(at - IS_LATE_AFTER, at)
        mine = select(cls).where(cls.begun_by == "clock", recent).order_by(cls.id.desc()).limit(1)
        last = db.session.scalar(mine)
        if last is not None and last.ended_at is None:
            return last
        since = last.started_at if last is not None else WrappedKey.platform().created_at
        if since > at - VERIFIED_EVERY:
            return None
        begun = cls.begin("clock", at)
        db.session.add(begun)
        return begun

    def add(self, results: Iterable[ChainResult]) -> None:
        for found in results:
            if found.records or found.memories:
                self.chains += 1
            self.records += found.records
            self.memories += found.memories
            if found.problem is not None:
                self.note_problem(f"{found.name}: {found.problem}")

    def note_problem(self, problem: str) -> None:
        self.problems += 1
        self.first_problem = self.first_problem or problem

    def end(self, at: datetime) -> None:
        """Store that it ended; a problem is recorded as ``verification_failed``."""
        self.ended_at = at
        db.session.add(self)
        if not self.problems:
            return
        # the platform's own chain may be altered, and a forged record may have the next id
        with suppress(RowAltered, IntegrityError), db.session.begin_nested():
            AuditLog.record(
                "verification_failed",
                chain=PLATFORM,
                data={"problems": self.problems, "first": self.first_problem},
                at=at,
            )

    @classmethod
    def watch(cls) -> Watch:
        """Return the current alarm and the last finished verification. A failure alarms until it is
        acknowledged and a later one found nothing; so does a verification that is late.
        """
        newest = select(func.max(cls.id)).where(cls.ended_at.is_not(None)).scalar_subquery()
        rows = select(cls).where(or_(cls.id == newest, cls._is_unseen_failure()))
        found = db.session.scalars(rows.order_by(cls.id.desc())).all()
        last = found[0] if found else None
        failed = next((each for each in found if each.problems), None)
        alarm = failed.alarm if failed else _lateness(last)
        return Watch(alarm, last)

    @classmethod
    def acknowledge_all(cls, *, user: Actor, at: datetime) -> None:
        unseen = db.session.scalars(select(cls).where(cls._is_unseen_failure())).all()
        for each in unseen:
            each.seen_at, each.seen_by_id = at, user.id
        if unseen:
            ids = sorted(each.id for each in unseen)
            AuditLog.record(
                "verification_seen", chain=PLATFORM, user=user, data={"verifications": ids}, at=at
            )

    @classmethod
    def _is_unseen_failure(cls) -> ColumnElement[bool]:
        return and_(cls.problems > 0, cls.seen_at.is_(None), cls.ended_at.is_not(None))

    @property
    def alarm(self) -> Alarm:
        others = self.problems - 1
        more = f", and {plural(others, 'more problem')}" if others else ""
        text = f"{self.first_problem}{more} (verified at {self.ended_at:%Y-%m-%d %H:%M} UTC)"
        return Alarm("failed", text, self.first_problem)


def _lateness(last: Verification | None) -> Alarm | None:
    now = clock.now()
    since = (last.ended_at if last is not None else None) or WrappedKey.platform().created_at
    if since > now - IS_LATE_AFTER:
        return None
    span = rough_span(now - since)
    return Alarm("late", f"no verification has finished for {span}: is the clock running?")
