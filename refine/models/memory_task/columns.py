"""The columns of a memory task, and the words for its states; the verbs are in the files beside."""

import uuid
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from sqlalchemy import ForeignKey, Text, text
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship

from refine import clock
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.columns import Count, Created, Sealed, SealedText, Usd, Uuid
from refine.rules.content import storable
from refine.sealing import DataKey

Kind = Literal["reflection", "extraction"]
KINDS: tuple[Kind, ...] = ("reflection", "extraction")

Trigger = Literal["daily", "api", "cli"]
TRIGGERS: tuple[Trigger, ...] = ("daily", "api", "cli")

EndStatus = Literal["completed", "incomplete", "skipped", "failed"]
LIVE = ("queued", "running")
ENDED = ("completed", "incomplete", "skipped", "failed")

# How many memories one task may promote or save.
MAX_KEPT: dict[str, int] = {"reflection": 10, "extraction": 20}
# What nobody could work on for so long is not worked on any more.
LAPSES_AFTER: dict[str, timedelta] = {
    "reflection": timedelta(days=1),
    "extraction": timedelta(days=7),
}


def _json(field: str, value: object) -> str | None:
    return None if value is None else storable(value, field=field)


class TaskColumns:
    """What a task's row holds; the conversation only as long as it is needed."""

    __tablename__ = "memory_tasks"

    id: Mapped[Uuid]
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    kind: Mapped[str] = mapped_column(Text)
    trigger: Mapped[str] = mapped_column(Text)
    slot_at: Mapped[datetime | None]
    attempt: Mapped[int] = mapped_column(default=1, server_default=text("1"))
    status: Mapped[str] = mapped_column(Text, default="queued", server_default=text("'queued'"))
    end_reason: Mapped[str | None] = mapped_column(Text)
    error_kind: Mapped[str | None] = mapped_column(Text)
    model_id: Mapped[str] = mapped_column(Text)
    sealed_conversation: Mapped[Sealed | None] = mapped_column("conversation", deferred=True)

    memories_kept: Mapped[Count]
    tool_calls: Mapped[Count]
    llm_calls: Mapped[Count]
    prompt_tokens: Mapped[Count]
    cached_tokens: Mapped[Count]
    completion_tokens: Mapped[Count]
    cost_usd: Mapped[Usd] = mapped_column(default=Decimal(0), server_default=text("0"))
    prompt_version: Mapped[str | None] = mapped_column(Text)

    lease_token: Mapped[uuid.UUID | None]
    heartbeat_at: Mapped[datetime | None]
    dispatched_at: Mapped[datetime | None]
    created_at: Mapped[Created]
    due_at: Mapped[datetime] = mapped_column(default=clock.now, server_default=text("now()"))
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    conversation = SealedText(_json)

    @declared_attr
    def agent(self) -> Mapped[Agent]:
        """The agent whose memory it is."""
        return relationship()

    def data_key(self) -> DataKey:
        """Return the key of the agent whose task this is."""
        return self.agent.data_key()

    def lock(self) -> None:
        """Lock agent and task, in this order, and read both afresh."""
        self.agent.lock()
        db.session.refresh(self, with_for_update={"key_share": True})
