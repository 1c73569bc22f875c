"""The mechanic's exception: a human's time-limited permission to read one agent's memories."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Text, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine.errors import InvalidValue
from refine.extensions import Base
from refine.models.agent import Agent
from refine.models.columns import Created, Sealed, SealedText, Uuid
from refine.models.user import User
from refine.rules.content import bounded_text, storable
from refine.sealing import DataKey

if TYPE_CHECKING:
    from refine.models.account import Account

REASONS = (
    "failed_session",
    "suspected_harm",
    "agent_asked",
    "data_subject_request",
    "legal_duty",
)
STATUSES = ("requested", "granted", "declined", "failed", "lapsed", "ended")
END_REASONS = ("expired", "ended_by_user", "revoked_by_agent", "revoked_by_admin")

MIN_PURPOSE_CHARACTERS = 20
MAX_PURPOSE_CHARACTERS = 500


def _purpose(field: str, value: object) -> str:
    purpose = bounded_text(value, field=field, limit=MAX_PURPOSE_CHARACTERS)
    if len(purpose) < MIN_PURPOSE_CHARACTERS:
        raise InvalidValue(f"{field} must have at least {MIN_PURPOSE_CHARACTERS} characters")
    return purpose


def _text(field: str, value: object) -> str | None:
    return None if value is None else storable(value, field=field)


class AccessGrant(Base):
    """A request to read, and what became of it: one row for its whole life."""

    __tablename__ = "access_grants"
    __table_args__ = (
        CheckConstraint(f"reason IN {REASONS}", name="reason"),
        CheckConstraint(f"status IN {STATUSES}", name="status"),
        CheckConstraint(f"end_reason IN {END_REASONS}", name="end_reason"),
        CheckConstraint("duration_minutes BETWEEN 15 AND 240", name="duration_minutes"),
        CheckConstraint("(granted_at IS NULL) = (expires_at IS NULL)", name="expires"),
        CheckConstraint("status <> 'granted' OR granted_at IS NOT NULL", name="granted"),
        Index(
            "ix_access_grants_live",
            "user_id",
            "agent_id",
            postgresql_where=text("status IN ('requested', 'granted')"),
        ),
    )

    id: Mapped[Uuid]
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

    account: Mapped["Account"] = relationship()
    user: Mapped[User] = relationship(foreign_keys=[user_id])
    agent: Mapped[Agent] = relationship()

    purpose = SealedText(_purpose)
    reply = SealedText(_text)
    closing_note = SealedText(_text)

    def __init__(self, *, agent: Agent, **fields: Any) -> None:
        # the agent comes first: its key seals the rest
        self.agent = agent
        super().__init__(**fields)

    def data_key(self) -> DataKey:
        """Return the key of the agent whose memories the grant is about."""
        return self.agent.data_key()
