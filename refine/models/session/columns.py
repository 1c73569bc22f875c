"""The columns of a session, and the words for its states; the verbs are in the files beside it."""

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from sqlalchemy import BigInteger, ForeignKey, Numeric, Text, select, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.columns import Count, Created, Sealed, SealedText, Usd, Uuid
from refine.models.session.entry import SessionEntry
from refine.models.user import User
from refine.rules.content import bounded_text, storable
from refine.sealing import DataKey

Trigger = Literal["weekly", "over_budget", "manual", "api", "cli"]
TRIGGERS: tuple[Trigger, ...] = ("weekly", "over_budget", "manual", "api", "cli")
# Nobody asked for these by hand.
AUTOMATIC_TRIGGERS = ("weekly", "over_budget")

EndStatus = Literal["completed", "rolled_back", "incomplete", "declined", "skipped", "failed"]
LIVE = ("queued", "running")
ENDED = ("completed", "rolled_back", "incomplete", "declined", "skipped", "failed")
# Where the Time Machine was used: who undid a session, if not a user of the dashboard.
Through = Literal["dashboard", "command line", "agent"]

# The ends of a session whose agent consented and worked.
AFTER_LOOP = ("completed", "rolled_back", "incomplete")

# What "slow erosion" and the front page look back over.
ROLLING_WINDOW = timedelta(days=30)
# A worker's heart beats every 10 seconds; one that missed three beats is lost. With the tick's
# minute, and what holds a tick up, its session ends within two.
LOST_AFTER = timedelta(seconds=35)


def _summary(field: str, value: object) -> str | None:
    return None if value is None else bounded_text(value, field=field, limit=12_000)


def _reply(field: str, value: object) -> str | None:
    return None if value is None else storable(value, field=field)


class SessionColumns:
    """What a session's row holds, and its entries."""

    __tablename__ = "refinement_sessions"

    id: Mapped[Uuid]
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    trigger: Mapped[str] = mapped_column(Text)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    slot_at: Mapped[datetime | None]
    attempt: Mapped[int] = mapped_column(default=1, server_default=text("1"))
    status: Mapped[str] = mapped_column(Text, default="queued", server_default=text("'queued'"))
    end_reason: Mapped[str | None] = mapped_column(Text)
    error_kind: Mapped[str | None] = mapped_column(Text)

    model_id: Mapped[str] = mapped_column(Text)
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
    tool_calls: Mapped[Count]
    llm_calls: Mapped[Count]
    prompt_tokens: Mapped[Count]
    cached_tokens: Mapped[Count]
    completion_tokens: Mapped[Count]
    cost_usd: Mapped[Usd] = mapped_column(default=Decimal(0), server_default=text("0"))

    lease_token: Mapped[uuid.UUID | None]
    heartbeat_at: Mapped[datetime | None]
    stop_requested_at: Mapped[datetime | None]
    stop_requested_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    dispatched_at: Mapped[datetime | None]
    consented_at: Mapped[datetime | None]
    batch_through_id: Mapped[int | None] = mapped_column(BigInteger)
    prompt_version: Mapped[str | None] = mapped_column(Text)
    sealed_summary: Mapped[Sealed | None] = mapped_column("summary", deferred=True)
    sealed_consent_reply: Mapped[Sealed | None] = mapped_column("consent_reply", deferred=True)

    created_at: Mapped[Created]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    undone_at: Mapped[datetime | None]
    undone_by_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    undone_through: Mapped[str | None] = mapped_column(Text)

    summary = SealedText(_summary)
    consent_reply = SealedText(_reply)

    @declared_attr
    def agent(self) -> Mapped[Agent]:
        """The agent whose memory it is."""
        return relationship()

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

    def data_key(self) -> DataKey:
        """Return the key of the agent whose session this is."""
        return self.agent.data_key()

    def entries(self, ids: Iterable[int] | None = None) -> dict[int, SessionEntry]:
        """Return the entries of these memories, or all, by the memory's id."""
        wanted = select(SessionEntry).where(SessionEntry.session_id == self.id)
        if ids is not None:
            wanted = wanted.where(SessionEntry.memory_id.in_(list(ids)))
        return {entry.memory_id: entry for entry in db.session.scalars(wanted)}
