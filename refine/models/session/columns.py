"""The columns of a session, and the words for its states; the verbs are in the files beside it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from sqlalchemy import BigInteger, ForeignKey, Numeric, Text, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship

from refine.extensions import db
from refine.models.columns import Count, Sealed, SealedText
from refine.models.run import Run
from refine.models.session.entry import SessionEntry
from refine.models.user import User
from refine.rules.content import bounded_text, storable

Trigger = Literal["weekly", "over_budget", "manual", "api", "cli"]
TRIGGERS: tuple[Trigger, ...] = ("weekly", "over_budget", "manual", "api", "cli")
# Nobody asked for these by hand.
AUTOMATIC_TRIGGERS = ("weekly", "over_budget")

EndStatus = Literal["completed", "rolled_back", "incomplete", "declined", "skipped", "failed"]
ENDED = ("completed", "rolled_back", "incomplete", "declined", "skipped", "failed")
# Where the Time Machine was used: who undid a session, if not a user of the dashboard.
Through = Literal["dashboard", "command line", "agent"]

# The ends of a session whose agent consented and worked.
AFTER_LOOP = ("completed", "rolled_back", "incomplete")

# What "slow erosion" and the front page look back over.
ROLLING_WINDOW = timedelta(days=30)


def _summary(field: str, value: object) -> str | None:
    return None if value is None else bounded_text(value, field=field, limit=12_000)


def _reply(field: str, value: object) -> str | None:
    return None if value is None else storable(value, field=field)


class SessionColumns(Run):
    """What a session's row holds besides its lease, and its entries."""

    __tablename__ = "refinement_sessions"

    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    threshold: Mapped[Decimal] = mapped_column(Numeric(5, 4))
    mass_before: Mapped[int | None]
    mass_after: Mapped[int | None]
    memories_before: Mapped[int | None]
    memories_after: Mapped[int | None]
    duplicates_removed: Mapped[Count]
    removable_tokens: Mapped[Count]
    removed_tokens: Mapped[Count]
    mutation_count: Mapped[Count]
    stats: Mapped[dict[str, int]] = mapped_column(
        JSONB,
        default=lambda: {"consolidated": 0, "updated": 0, "deleted": 0, "protected": 0},
        server_default=text(
            """'{"consolidated": 0, "updated": 0, "deleted": 0, "protected": 0}'"""
        ),
    )

    turns: Mapped[Count]
    stop_requested_at: Mapped[datetime | None]
    stop_requested_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    consented_at: Mapped[datetime | None]
    batch_through_id: Mapped[int | None] = mapped_column(BigInteger)
    sealed_summary: Mapped[Sealed | None] = mapped_column("summary", deferred=True)
    sealed_consent_reply: Mapped[Sealed | None] = mapped_column("consent_reply", deferred=True)

    undone_at: Mapped[datetime | None]
    undone_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    undone_through: Mapped[str | None] = mapped_column(Text)

    summary = SealedText(_summary)
    consent_reply = SealedText(_reply)

    @declared_attr
    def user(self) -> Mapped[User | None]:
        """Who asked for it, if a person did."""
        return relationship(foreign_keys="RefinementSession.user_id")

    @declared_attr
    def stop_requested_by(self) -> Mapped[User | None]:
        """Who asked it to stop, if a user did."""
        return relationship(foreign_keys="RefinementSession.stop_requested_by_id")

    @declared_attr
    def undone_by(self) -> Mapped[User | None]:
        """Who undid it, if a user of the dashboard did."""
        return relationship(foreign_keys="RefinementSession.undone_by_id")

    def entries(self, ids: Iterable[int] | None = None) -> dict[int, SessionEntry]:
        """Return the entries of these memories, or all, by the memory's id."""
        wanted = select(SessionEntry).where(SessionEntry.session_id == self.id)
        if ids is not None:
            wanted = wanted.where(SessionEntry.memory_id.in_(list(ids)))
        return {entry.memory_id: entry for entry in db.session.scalars(wanted)}
