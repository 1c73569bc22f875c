"""Data keys as the database keeps them: wrapped."""

from datetime import datetime
from typing import Literal

from sqlalchemy import CheckConstraint, Index, Text, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column

from refine.errors import SealingError, WrongKey
from refine.extensions import Base, db
from refine.models.columns import BigId, Created, Sealed
from refine.sealing import DataKey, keyring

Purpose = Literal["agent", "platform"]


class WrappedKey(Base):
    """One random data key, wrapped by one of REFINE_ENCRYPTION_KEYS.

    An agent's key seals what the agent owns; the platform's one key makes the audit chains, so
    that they still verify when an agent's key was destroyed.
    """

    __tablename__ = "data_keys"
    __table_args__ = (
        CheckConstraint("purpose IN ('agent', 'platform')", name="purpose"),
        CheckConstraint("(wrapped IS NULL) = (destroyed_at IS NOT NULL)", name="destroyed"),
        Index(
            "uq_data_keys_platform",
            "purpose",
            unique=True,
            postgresql_where=text("purpose = 'platform'"),
        ),
    )

    id: Mapped[BigId]
    purpose: Mapped[str] = mapped_column(Text)
    wrapped: Mapped[Sealed | None]
    wrapped_by: Mapped[str] = mapped_column(Text, index=True)
    created_at: Mapped[Created]
    destroyed_at: Mapped[datetime | None]

    @classmethod
    def new(cls, purpose: Purpose) -> "WrappedKey":
        """Return a fresh key, not yet stored; WrongKey if the ring is not this database's."""
        cls.check_keyring()
        ring = keyring()
        return cls(purpose=purpose, wrapped=ring.wrap_new(), wrapped_by=ring.primary)

    @classmethod
    def platform(cls) -> "WrappedKey":
        """Return the platform's key, made at the first call."""
        if (found := cls._platform()) is not None:
            return found
        made = cls.new("platform")
        db.session.execute(
            insert(cls)
            .values(purpose="platform", wrapped=made.wrapped, wrapped_by=made.wrapped_by)
            .on_conflict_do_nothing()
        )
        return db.session.execute(select(cls).where(cls.purpose == "platform")).scalar_one()

    @classmethod
    def check_keyring(cls) -> None:
        """Raise WrongKey if any stored key was wrapped by a key that the ring does not hold."""
        with db.session.no_autoflush:
            stored = db.session.scalars(
                select(cls.wrapped_by).where(cls.wrapped.is_not(None)).distinct()
            ).all()
        if unknown := sorted(set(stored) - keyring().fingerprints):
            raise WrongKey(
                "REFINE_ENCRYPTION_KEYS does not hold the key that this database was sealed with "
                f"(fingerprint {', '.join(unknown)}); add it, nothing was written"
            )

    def open(self) -> DataKey:
        """Return the key, ready to use; SealingError where it was destroyed."""
        if self.wrapped is None:
            raise SealingError("the data key was destroyed: what it sealed is erased for good")
        return keyring().unwrap(self.wrapped, self.wrapped_by)

    @classmethod
    def _platform(cls) -> "WrappedKey | None":
        return db.session.execute(select(cls).where(cls.purpose == "platform")).scalar_one_or_none()
