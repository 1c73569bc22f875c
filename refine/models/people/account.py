"""Accounts: the tenants."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Connection,
    Numeric,
    Text,
    and_,
    event,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.orm import Mapped, Mapper, mapped_column, validates

from refine import clock, settings
from refine.errors import InvalidValue, NotFound, Refused
from refine.extensions import Base, Instant, db, later_now
from refine.models.attested import Attested, ChainOwner
from refine.models.audit import AuditLog, Chain, ChainHead
from refine.models.audit.record import Actor
from refine.models.columns import (
    BigId,
    BoolFalse,
    BoolTrue,
    Created,
    Name,
    Updated,
    require_allowed,
    set_fields,
)
from refine.rules.content import MAX_SLUG_CHARACTERS, visible_name
from refine.rules.schedules import last_slot, next_slot, valid_schedule, valid_time_zone

# Fields that an admin may set in the dashboard.
ADMIN_FIELDS = (
    *("name", "time_zone", "schedule", "paused", "monthly_cost_cap_usd", "kept_months"),
    "second_factor_required",
)

# What is erased cannot come back, so a new number of months waits for so long.
RETENTION_WAIT = timedelta(days=7)
MAX_KEPT_MONTHS = 120

# A slot is served within minutes; one that is open for this long is stuck.
SLOT_IS_LATE_AFTER = timedelta(hours=1)

# Only `refine up` adds the demo account, to an empty database.
DEMO_SLUG = "demo"

_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Account(Attested, Base):
    """A tenant: owns agents and users; nothing crosses accounts."""

    __tablename__ = "accounts"
    __table_args__ = (
        CheckConstraint("slug ~ '^[a-z0-9]+(-[a-z0-9]+)*$'", name="slug"),
        CheckConstraint("monthly_cost_cap_usd >= 0", name="monthly_cost_cap"),
    )

    id: Mapped[BigId]
    name: Mapped[Name]
    slug: Mapped[str] = mapped_column(Text, unique=True)
    time_zone: Mapped[str] = mapped_column(Text, default="UTC", server_default=text("'UTC'"))
    schedule: Mapped[str | None] = mapped_column(Text)
    next_due_at: Mapped[datetime | None]
    # the next ticks queue a session for every agent that needs one, as for a slot
    sweep_requested_at: Mapped[datetime | None]
    paused: Mapped[BoolFalse]
    # since when its users are locked out, and nobody joins it
    locked_at: Mapped[datetime | None]
    zero_data_retention: Mapped[BoolTrue]
    second_factor_required: Mapped[BoolFalse]
    monthly_cost_cap_usd: Mapped[Decimal | None] = mapped_column(Numeric(12, 2))
    # how long expired journal memories, and what was said in sessions, are kept; NULL: for ever
    kept_months: Mapped[int | None]
    retention_from: Mapped[datetime | None]
    created_at: Mapped[Created]
    updated_at: Mapped[Updated]

    unsigned: ClassVar[Mapping[str, str]] = {
        "next_due_at": "the tick moves it on for many accounts at once",
        "updated_at": "set by every update, also of unsigned columns",
    }

    @property
    def chain(self) -> Chain:
        return Chain(account_id=self.id)

    @property
    def chain_owner(self) -> ChainOwner:
        return ChainOwner(account_id=self.id)

    @property
    def is_demo(self) -> bool:
        """Whether this is the demo account, for whose agents the rehearsal model answers."""
        self.require_genuine()
        return self.slug == DEMO_SLUG

    @classmethod
    def by_slug(cls, slug: str) -> "Account":
        """Return the account of that slug, regardless of case, or raise NotFound."""
        account = db.session.scalar(select(cls).where(cls.slug == slug.lower()))
        if account is None:
            raise NotFound(f"no account has the slug {slug!r}")
        return account

    @classmethod
    def create(cls, name: str, slug: str | None = None, *, user: Actor | None = None) -> "Account":
        """Add an account; Refused if the slug is taken."""
        slug = slug or cls.slug_for(name)
        if slug == DEMO_SLUG:
            raise Refused(f"the slug {slug!r} is reserved for the demo account; give another one")
        if db.session.scalar(select(cls.id).where(cls.slug == slug)) is not None:
            raise Refused(f"the slug {slug!r} is taken; give another one")
        account = cls(name=name, slug=slug)
        db.session.add(account)
        db.session.flush()
        account.record("account_created", user=user)
        return account

    def record(self, action: str, **about: Any) -> AuditLog:
        """Append a record to the account's chain; about the account, if no subject is given."""
        return AuditLog.record(action, chain=self.chain, **{"subject": self, **about})

    @staticmethod
    def slug_for(name: str) -> str:
        slug = "-".join(re.findall(r"[a-z0-9]+", name.lower()))
        if not slug:
            raise InvalidValue("a slug needs letters a to z or digits; give one with --slug")
        return slug[:MAX_SLUG_CHARACTERS].strip("-")

    def configure(self, *, user: Actor, at: datetime | None = None, **fields: Any) -> list[str]:
        """Set ``ADMIN_FIELDS``, return changed names; a new schedule moves a slot not yet due."""
        require_allowed(fields, ADMIN_FIELDS)
        at = at or clock.now()
        self.lock()
        changes = set_fields(self, fields)
        if not changes:
            return []
        is_due = self.next_due_at is not None and self.next_due_at <= at
        if changes.keys() & {"schedule", "time_zone"} and not is_due:
            self.next_due_at = self.next_slot(at)
        if "kept_months" in changes:
            self.retention_from = max(at, later_now()) + RETENTION_WAIT
        self.record("account_settings_update", user=user, data={"changes": changes}, at=at)
        return list(changes)

    def request_sweep(self, *, user: Actor | None = None, at: datetime | None = None) -> None:
        """Have the next ticks queue a session for every agent that needs one."""
        self.lock()
        if self.sweep_requested_at is None:
            self.sweep_requested_at = at or clock.now()
            self.record("sweep_requested", user=user, at=at)

    @classmethod
    def set_slots(cls, at: datetime) -> None:
        """Set each account's next slot by its schedule; slots already due stay."""
        for account in db.session.scalars(select(cls).where(cls.next_due_at.is_(None))):
            account.next_due_at = account.next_slot(min(account.created_at, at))
        schedule = func.coalesce(cls.schedule, settings.current().schedule)
        for each, time_zone in db.session.execute(select(schedule, cls.time_zone).distinct()):
            following = next_slot(each, time_zone, at)
            theirs = schedule == each, cls.time_zone == time_zone
            moved = update(cls).where(*theirs, cls.next_due_at > at, cls.next_due_at != following)
            db.session.execute(moved.values(next_due_at=following))

    @classmethod
    def has_late_slot(cls, at: Instant) -> ColumnElement[bool]:
        """Return the SQL condition that the account's slot is stuck."""
        return and_(~cls.paused, cls.next_due_at < at - SLOT_IS_LATE_AFTER)

    @classmethod
    def due(cls, at: datetime) -> Sequence["Account"]:
        """Return the accounts with a due slot or a sweep, the earliest first."""
        is_due = or_(cls.next_due_at <= at, cls.sweep_requested_at.is_not(None))
        since = func.least(cls.next_due_at, cls.sweep_requested_at)
        return db.session.scalars(select(cls).where(is_due).order_by(since, cls.id)).all()

    @property
    def effective_schedule(self) -> str:
        return self.schedule or settings.current().schedule

    def slot_to_serve(self, at: datetime) -> datetime:
        """Return the slot to run at ``at``: the last one, if several were missed."""
        last = self.last_slot(at)
        # the schedule may have been changed since its slot came
        return max(last, self.next_due_at) if self.next_due_at is not None else last

    def last_slot(self, at: datetime) -> datetime:
        return last_slot(self.effective_schedule, self.time_zone, at)

    def next_slot(self, at: datetime) -> datetime:
        return next_slot(self.effective_schedule, self.time_zone, at)

    @validates("name")
    def _valid_name(self, _key: str, name: Any) -> str:
        return visible_name(name, field="name")

    @validates("slug")
    def _valid_slug(self, _key: str, slug: Any) -> Any:
        is_valid = isinstance(slug, str) and _SLUG.fullmatch(slug)
        if not is_valid or len(slug) > MAX_SLUG_CHARACTERS:
            raise InvalidValue("slug must be lower-case letters, digits and single hyphens")
        return slug

    @validates("time_zone")
    def _valid_time_zone(self, _key: str, name: Any) -> str:
        return valid_time_zone(name)

    @validates("kept_months")
    def _valid_months(self, key: str, months: Any) -> int | None:
        if months is not None and not 1 <= months <= MAX_KEPT_MONTHS:
            raise InvalidValue(f"{key} must be from 1 to {MAX_KEPT_MONTHS}, or empty")
        return None if months is None else int(months)

    @validates("schedule")
    def _valid_schedule(self, _key: str, schedule: Any) -> str | None:
        return None if schedule is None else valid_schedule(schedule)


@event.listens_for(Account, "after_insert")
def _begin_chain(_mapper: Mapper[Any], _connection: Connection, account: Account) -> None:
    ChainHead.begin(account.chain_owner)
