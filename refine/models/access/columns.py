"""The columns of a grant, and the words for its states; the verbs are in the files beside it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ForeignKey, Text, func, text
from sqlalchemy.orm import Mapped, column_property, declared_attr, mapped_column, relationship

from refine.errors import InvalidValue
from refine.models.account import Account
from refine.models.agents_own import AgentsOwn
from refine.models.audit import AuditLog
from refine.models.columns import Created, Sealed, SealedText
from refine.models.user import User
from refine.rules.content import bounded_text, storable

REASONS = (
    "failed_session",
    "suspected_harm",
    "agent_asked",
    "data_subject_request",
    "legal_duty",
)
STATUSES = ("requested", "granted", "declined", "failed", "lapsed", "ended")
# Of these a user has one at most for each agent.
OPEN = ("requested", "granted")
EndReason = Literal["expired", "ended_by_user", "revoked_by_agent", "revoked_by_admin"]
END_REASONS = ("expired", "ended_by_user", "revoked_by_agent", "revoked_by_admin")

MIN_PURPOSE_CHARACTERS = 20
MAX_PURPOSE_CHARACTERS = 500
MAX_NOTE_CHARACTERS = 500
MIN_MINUTES = 15
MAX_MINUTES = 240

# A request that no worker took for so long lapses.
LAPSES_AFTER = timedelta(hours=24)
# Longer than a worker may ask: one that has not answered by then is gone.
ASKED_IN_VAIN_AFTER = timedelta(minutes=5)


def valid_purpose(field: str, value: object) -> str:
    """Return a purpose as it is kept: 20 to 500 characters, trimmed."""
    purpose = bounded_text(value, field=field, limit=MAX_PURPOSE_CHARACTERS)
    if len(purpose) < MIN_PURPOSE_CHARACTERS:
        raise InvalidValue(f"{field} must have at least {MIN_PURPOSE_CHARACTERS} characters")
    return purpose


def _reply(field: str, value: object) -> str | None:
    return None if value is None else storable(value, field=field)


def _note(field: str, value: object) -> str | None:
    return None if value is None else bounded_text(value, field=field, limit=MAX_NOTE_CHARACTERS)


@dataclass(frozen=True)
class Wish:
    """What a user asks for: why, in a word and in their own words, and for how long."""

    reason: str
    purpose: str
    duration_minutes: int

    @classmethod
    def of(cls, *, reason: object, purpose: object, duration_minutes: object) -> "Wish":
        """Return it, or raise InvalidValue for what cannot be asked."""
        if reason not in REASONS:
            raise InvalidValue(f"reason must be one of {', '.join(REASONS)}")
        if type(duration_minutes) is not int or not MIN_MINUTES <= duration_minutes <= MAX_MINUTES:
            raise InvalidValue(
                f"duration_minutes must be a whole number from {MIN_MINUTES} to {MAX_MINUTES}"
            )
        return cls(str(reason), valid_purpose("purpose", purpose), duration_minutes)


class GrantColumns(AgentsOwn):
    """What a grant's row holds."""

    __tablename__ = "access_grants"

    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    status: Mapped[str] = mapped_column(
        Text, default="requested", server_default=text("'requested'")
    )
    reason: Mapped[str] = mapped_column(Text)
    sealed_purpose: Mapped[Sealed] = mapped_column("purpose", deferred=True)
    duration_minutes: Mapped[int]
    model_id: Mapped[str] = mapped_column(Text)
    sealed_reply: Mapped[Sealed | None] = mapped_column("reply", deferred=True)
    generation_id: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[Created]
    asked_at: Mapped[datetime | None]
    granted_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    end_reason: Mapped[str | None] = mapped_column(Text)
    ended_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    sealed_closing_note: Mapped[Sealed | None] = mapped_column("closing_note", deferred=True)

    purpose = SealedText(valid_purpose)
    reply = SealedText(_reply)
    closing_note = SealedText(_note)

    @declared_attr
    def is_past_its_end(self) -> Mapped[bool]:
        """Whether its end had come when the row was read, by the database's clock."""
        return column_property(func.coalesce(self.expires_at <= func.clock_timestamp(), False))

    @declared_attr
    def account(self) -> Mapped[Account]:
        """The agent's account."""
        return relationship()

    @declared_attr
    def user(self) -> Mapped[User]:
        """Who asked."""
        return relationship(foreign_keys="AccessGrant.user_id")

    @declared_attr
    def ended_by(self) -> Mapped[User | None]:
        """Who ended or revoked it, if a user did."""
        return relationship(foreign_keys="AccessGrant.ended_by_id")

    def record(
        self,
        action: str,
        *,
        user: User | None = None,
        at: datetime | None = None,
        sealed: dict[str, Any] | None = None,
        **facts: Any,
    ) -> AuditLog:
        """Write a record about this grant to the agent's chain."""
        return AuditLog.record(
            f"memory_access_{action}",
            agent=self.agent,
            user=user,
            subject=("AccessGrant", self.id),
            data={"grant_user_id": self.user_id, "reason": self.reason, **facts},
            sealed=sealed,
            at=at,
        )
