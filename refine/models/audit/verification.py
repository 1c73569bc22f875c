"""What each verification found, kept so that pages and monitors show it."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    Row,
    Select,
    Text,
    and_,
    case,
    or_,
    select,
    text,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Mapped, mapped_column

from refine import clock
from refine.errors import RowAltered
from refine.extensions import Base, UtcDateTime, db
from refine.extensions.statements import plain_query
from refine.models.attested import Attested, plain_digest
from refine.models.audit.chain import PLATFORM, Actor
from refine.models.audit.checkpoint import Position
from refine.models.audit.record import AuditLog
from refine.models.columns import BigId, BoolFalse, Count
from refine.models.keys import WrappedKey
from refine.rules.quantities import plural, rough_span

# How often the clock starts a verification.
VERIFIED_EVERY = timedelta(days=1)
# How often it is in full; otherwise it continues where chains were verified before.
IN_FULL_EVERY = timedelta(days=7)
# When verification counts as late: this long after the last one finished.
IS_LATE_AFTER = timedelta(days=3)

# How many of the newest verifications are read whenever a page asks for the alarm.
_WATCHED = 7

_READABLE = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)

BegunBy = Literal["clock", "command"]


@dataclass(frozen=True)
class ChainResult:
    """What the verification of one chain found; ``problem`` names the first thing that is wrong."""

    name: str
    records: int
    memories: int
    problem: str | None
    chain_id: int | None = None
    position: Position | None = None


AlarmKind = Literal["failed", "altered", "late"]


@dataclass(frozen=True)
class Alarm:
    """What is wrong, in words for a site admin: it names rows, but no content."""

    kind: AlarmKind
    alarm_text: str


class Watch(NamedTuple):
    """What verification has to say now: what alarms, and the last one that ended.

    ``last`` has the columns of a ``Verification``.
    """

    alarm: Alarm | None
    last: Any


class _ReadInstant(UtcDateTime):
    """An instant; one that Python cannot hold, such as ``infinity``, is read as none at all.

    Otherwise nobody could load the row, and the alarm about it would fail.
    """

    cache_ok = True

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return case((column.between(*_READABLE), column))


class Verification(Attested, Base):
    """One verification of everything: how far it came, and the first problem that it found."""

    __tablename__ = "verifications"

    id: Mapped[BigId]
    begun_by: Mapped[str] = mapped_column(Text)
    started_at: Mapped[datetime] = mapped_column(_ReadInstant)
    ended_at: Mapped[datetime | None] = mapped_column(_ReadInstant)
    # the id of the last chain that was verified
    after_chain_id: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    chains: Mapped[Count]
    records: Mapped[Count]
    memories: Mapped[Count]
    problems: Mapped[Count]
    first_problem: Mapped[str | None] = mapped_column(Text)
    seen_at: Mapped[datetime | None] = mapped_column(_ReadInstant)
    seen_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    # whether it continued where chains were verified before
    goes_on: Mapped[BoolFalse]

    digest_columns = (
        "id",
        "begun_by",
        "started_at",
        "ended_at",
        "after_chain_id",
        "chains",
        "records",
        "memories",
        "problems",
        "first_problem",
        "seen_at",
        "seen_by_id",
        "goes_on",
    )

    @classmethod
    def begin(cls, begun_by: BegunBy, at: datetime, *, goes_on: bool = False) -> "Verification":
        """Add a verification that begins at ``at``, in full unless it ``goes_on``."""
        begun = cls.unstored(begun_by, at, goes_on=goes_on)
        db.session.add(begun)
        db.session.flush()
        return begun

    @classmethod
    def unstored(cls, begun_by: BegunBy, at: datetime, *, goes_on: bool = False) -> "Verification":
        """Return one that counts like any other but is not stored: for a read-only database."""
        begun = cls(begun_by=begun_by, started_at=at, after_chain_id=0, goes_on=goes_on)
        begun.chains = begun.records = begun.memories = begun.problems = 0
        return begun

    @classmethod
    def due(cls, at: datetime) -> "Verification | None":
        """Return the clock's verification that is not finished, or a new one if it is time.

        One whose row was changed outside the application does not count. One that began days ago is
        not continued: it may be an old version of its row.
        """
        last = cls._newest(lambda found: found.begun_by == "clock")
        if last is not None and last.ended_at is None and last.started_at > at - IS_LATE_AFTER:
            return last
        before = at - VERIFIED_EVERY
        since = last.started_at if last is not None else _installed_before(before)
        if since is None or since > before:
            return None
        in_full = cls.last_in_full()
        goes_on = in_full is not None and in_full.started_at > at - IN_FULL_EVERY
        return cls.begin("clock", at, goes_on=goes_on)

    def add(self, results: Iterable[ChainResult]) -> None:
        """Count what was found."""
        for found in results:
            self.chains += 1
            self.records += found.records
            self.memories += found.memories
            if found.problem is not None:
                self.note_problem(f"{found.name}: {found.problem}")

    def note_problem(self, problem: str) -> None:
        """Count a problem, and keep it if it is the first."""
        self.problems += 1
        self.first_problem = self.first_problem or problem

    def end(self, at: datetime) -> None:
        """End it; a problem is recorded as ``verification_failed``."""
        self.ended_at = at
        if not self.problems:
            return
        # the platform's own chain may be what was altered, and a forged record may have the next id
        with suppress(RowAltered, IntegrityError), db.session.begin_nested():
            AuditLog.record(
                "verification_failed",
                chain=PLATFORM,
                data={"problems": self.problems, "first": self.first_problem},
                at=at,
            )

    @classmethod
    def last_in_full(cls) -> "Verification | None":
        """Return the last one that ended and read everything."""
        return cls._newest(lambda found: found.ended_at is not None and not found.goes_on)

    @classmethod
    def watch(cls) -> Watch:
        """Return what to be alarmed about, and the last one that ended; each None if there is none.

        A failed verification alarms until a site admin has looked at it and a later one found
        nothing wrong; one whose row was changed outside the application, until a site admin has
        looked. The record of a failure alarms as well, whatever its row says by now, and so does a
        last end that is ``IS_LATE_AFTER`` ago.
        """
        rows = _watched().rows()
        newest = rows[:_WATCHED]
        last: Any = next((row for row in newest if row.ended_at and _is_genuine(row)), None)
        if last is None and len(newest) == _WATCHED:
            last = cls._newest(lambda found: found.ended_at is not None)
        alarm = _stored_alarm(rows, last) or _recorded_alarm(rows)
        return Watch(alarm or _lateness(last.ended_at if last is not None else None), last)

    @classmethod
    def acknowledge_all(cls, *, user: Actor, at: datetime) -> None:
        """Acknowledge everything that alarms, recorded as ``verification_seen``."""
        failed = select(cls).where(
            cls.problems > 0, cls.seen_at.is_(None), cls.ended_at.is_not(None)
        )
        altered = cls.altered()
        seen = [found for found in db.session.scalars(failed) if found.is_genuine]
        for each in seen:
            each.seen_at, each.seen_by_id = at, user.id
        if seen or altered or _unseen_failure() is not None:
            AuditLog.record(
                "verification_seen",
                chain=PLATFORM,
                user=user,
                data={"verifications": sorted(each.id for each in (*seen, *altered))},
                at=at,
            )

    @classmethod
    def altered(cls) -> "list[Verification]":
        """Return those that were changed outside the application, unless a site admin looked."""
        rows = select(cls).order_by(cls.id).execution_options(populate_existing=True)
        found = [each for each in db.session.scalars(rows) if not each.is_genuine]
        looked_at = _looked_at() if found else ()
        return [each for each in found if each.id not in looked_at]

    @classmethod
    def _newest(cls, fits: Callable[["Verification"], bool]) -> "Verification | None":
        def first_of(rows: Iterable[Verification]) -> "Verification | None":
            return next((found for found in rows if found.is_genuine and fits(found)), None)

        newest_first = select(cls).order_by(cls.id.desc())
        # almost always one of the first few, for which no cursor is opened on the server
        few = db.session.scalars(newest_first.limit(_WATCHED)).all()
        if (found := first_of(few)) is not None or len(few) < _WATCHED:
            return found
        rest = newest_first.offset(_WATCHED).execution_options(yield_per=_WATCHED)
        with db.session.scalars(rest) as rows:
            return first_of(rows)


def _stored_alarm(rows: Sequence[Any], last: Any) -> Alarm | None:
    """Return what the rows of verifications alarm about, the newest first."""
    for row in rows:
        if not _is_genuine(row):
            if row.id not in _looked_at():
                said = f"Verification {row.id} was changed outside the application"
                return Alarm("altered", said)
        elif row.problems and row.ended_at and (row is last or row.seen_at is None):
            return Alarm("failed", _failed_text(row))
    return None


def _recorded_alarm(rows: Sequence[Any]) -> Alarm | None:
    """Return the alarm of a failure that is recorded, whatever rows say."""
    if rows and not rows[0].is_failure_recorded:
        return None
    record = _unseen_failure()
    return Alarm("failed", str(record.data["first"])) if record is not None else None


def _is_genuine(row: Row[Any]) -> bool:
    return bool(row.row_digest == plain_digest(Verification, row))


def _lateness(last_ended_at: datetime | None) -> Alarm | None:
    now = clock.now()
    since = last_ended_at or _installed_before(now - IS_LATE_AFTER)
    if since is None or since > now - IS_LATE_AFTER:
        return None
    return Alarm("late", f"none finished for {rough_span(now - since)}; check the clock")


def _failed_text(row: Row[Any]) -> str:
    others = row.problems - 1
    more = f", and {plural(others, 'more problem')}" if others else ""
    return f"{row.first_problem}{more} (verified at {row.ended_at:%Y-%m-%d %H:%M} UTC)"


@plain_query
def _watched() -> Select[*tuple[Any, ...]]:
    """Return the query for the newest and the failed ones, and whether any failure is recorded."""
    columns = (getattr(Verification, name) for name in (*Verification.digest_columns, "row_digest"))
    is_failure_recorded = _recorded("verification_failed").exists().label("is_failure_recorded")
    newest = select(Verification.id).order_by(Verification.id.desc()).limit(_WATCHED)
    failed = and_(Verification.problems > 0, Verification.seen_at.is_(None))
    return (
        select(*columns, is_failure_recorded)
        .where(or_(Verification.id.in_(newest), failed))
        .order_by(Verification.id.desc())
    )


def _looked_at() -> set[int]:
    """Return the ids of the verifications at which a site admin looked, by genuine records."""
    seen = _records("verification_seen")
    return {id_ for record in seen if record.is_linked() for id_ in record.data["verifications"]}


def _unseen_failure() -> AuditLog | None:
    """Return the last record of a failure, unless a site admin has looked since."""
    told = reversed(_records("verification_failed", "verification_seen"))
    last = next((record for record in told if record.is_linked()), None)
    return last if last is not None and last.action == "verification_failed" else None


def _records(*actions: str) -> Sequence[AuditLog]:
    """Return the records of these actions that can be read, oldest first."""
    return db.session.scalars(_recorded(*actions).order_by(AuditLog.id)).all()


def _recorded(*actions: str) -> Select[AuditLog]:
    readable = AuditLog.created_at.between(*_READABLE)
    return select(AuditLog).where(AuditLog.action.in_(actions), readable)


def _installed_before(at: datetime) -> datetime | None:
    """Return when the database was made, if that is before ``at``; otherwise None.

    Its key's date could be altered; no record's could.
    """
    if (created_at := WrappedKey.platform().created_at) <= at:
        return created_at
    older = select(AuditLog.id).where(AuditLog.created_at <= at).limit(1)
    return at if db.session.scalar(older) is not None else None
