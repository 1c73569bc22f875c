"""Accounts: the tenants."""

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import CheckConstraint, Numeric, Text, select, text
from sqlalchemy.orm import Mapped, mapped_column, validates

from refine import settings
from refine.errors import InvalidValue, NotFound
from refine.extensions import Base, db
from refine.models.columns import BigId, Created, Name, No, Updated, Yes
from refine.rules.content import one_line
from refine.rules.due import last_slot, next_slot, valid_schedule, valid_time_zone

_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Account(Base):
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
    paused: Mapped[No]
    zero_data_retention: Mapped[Yes]
    monthly_cost_cap_usd: Mapped[Decimal | None] = mapped_column(Numeric(12, 2))
    created_at: Mapped[Created]
    updated_at: Mapped[Updated]

    @classmethod
    def by_slug(cls, slug: str) -> "Account":
        """Return the account of that slug, or raise NotFound."""
        account = db.session.scalar(select(cls).where(cls.slug == slug))
        if account is None:
            raise NotFound(f"no account has the slug {slug!r}; `refine account list` shows them")
        return account

    @staticmethod
    def slug_for(name: str) -> str:
        """Return a slug made of the letters and digits of ``name``."""
        slug = "-".join(re.findall(r"[a-z0-9]+", name.lower()))
        if not slug:
            raise InvalidValue("a slug needs letters a to z or digits; give one with --slug")
        return slug[:60].strip("-")

    @property
    def effective_schedule(self) -> str:
        """The account's own schedule, or the platform's."""
        return self.schedule or settings.current().schedule

    def last_slot(self, at: datetime) -> datetime:
        """Return the latest slot at or before ``at``."""
        return last_slot(self.effective_schedule, self.time_zone, at)

    def next_slot(self, at: datetime) -> datetime:
        """Return the first slot after ``at``."""
        return next_slot(self.effective_schedule, self.time_zone, at)

    @validates("name")
    def _valid_name(self, _key: str, name: Any) -> str:
        return one_line(name, field="name")

    @validates("slug")
    def _valid_slug(self, _key: str, slug: Any) -> str:
        if not isinstance(slug, str) or not _SLUG.fullmatch(slug) or len(slug) > 60:
            raise InvalidValue("slug must be lower-case letters, digits and single hyphens")
        return slug

    @validates("time_zone")
    def _valid_time_zone(self, _key: str, name: Any) -> str:
        return valid_time_zone(name)

    @validates("schedule")
    def _valid_schedule(self, _key: str, schedule: Any) -> str | None:
        return None if schedule is None else valid_schedule(schedule)
