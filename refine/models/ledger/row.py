"""The columns of a memory."""

import uuid
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from sqlalchemy import BigInteger, ForeignKey, Sequence, Text, inspect, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.mutable import MutableList
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship, validates

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models.audit import Chain
from refine.models.columns import BoolFalse, Created, Sealed
from refine.models.ledger.values import MemoryValues
from refine.rules.content import known_tags
from refine.sealing import DataKey

MemoryType = Literal["core", "journal"]
MEMORY_TYPES: tuple[MemoryType, ...] = ("core", "journal")

# How long a journal memory is shown to its agent. Prompts, tools and pages say "one week" and "the
# last week".
JOURNAL_SHOWN_FOR = timedelta(weeks=1)

ID_SEQUENCE = Sequence("agent_memories_id_seq")


class MemoryOwner(Protocol):
    """The agent that owns memories, as far as they need to know it."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def chain(self) -> Chain: ...
    @property
    def core_count(self) -> int: ...
    @property
    def core_tokens(self) -> int: ...
    def data_key(self) -> DataKey: ...
    def lock(self) -> None: ...


class MemoryRow(MemoryValues):
    """The columns of a memory."""

    id: Mapped[int] = mapped_column(
        BigInteger,
        ID_SEQUENCE,
        primary_key=True,
        server_default=text("nextval('agent_memories_id_seq')"),
    )
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    memory_type: Mapped[str] = mapped_column(Text)
    sealed_content: Mapped[Sealed] = mapped_column("content")
    constitutional: Mapped[BoolFalse]
    # mutable, so that tags changed in place are stored, with a digest that covers them
    tags: Mapped[list[str]] = mapped_column(
        MutableList.as_mutable(ARRAY(Text)), default=list, server_default=text("'{}'")
    )
    content_hash: Mapped[str] = mapped_column(Text)
    token_estimate: Mapped[int]
    discarded_at: Mapped[datetime | None]
    created_at: Mapped[Created]
    recorded_at: Mapped[Created]
    updated_at: Mapped[Created]
    source: Mapped[str | None] = mapped_column(Text)
    source_id: Mapped[str | None] = mapped_column(Text)
    sealed_extra: Mapped[Sealed | None] = mapped_column("extra")
    session_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("refinement_sessions.id"))
    row_digest: Mapped[str] = mapped_column(Text)

    @declared_attr
    def agent(self) -> Mapped[MemoryOwner]:
        """The agent that keeps this memory; by name, because this module may not import agents."""
        return relationship("Agent")

    def __init__(
        self, *, agent: MemoryOwner, content: object, memory_type: object = "core", **fields: Any
    ) -> None:
        # agent and id come first: the rest is sealed with the one, and bound to the other
        self.agent, self.id = agent, fields.pop("id", None)
        at = clock.now()
        dates = {"created_at": at, "recorded_at": at, "updated_at": at}
        defaults: dict[str, Any] = {"constitutional": False, "tags": []}
        super().__init__(
            **{"content": content, "memory_type": memory_type, **defaults, **dates, **fields}
        )

    def data_key(self) -> DataKey:
        """Return the key of the agent who owns this memory."""
        return self.agent.data_key()

    def is_genuine_under(self, key: DataKey) -> bool:
        """Tell whether ``is_genuine``; ``key`` is the agent's."""
        return inspect(self).modified or super().is_genuine_under(key)

    def _is_changed(self) -> bool:
        return db.session.is_modified(self, include_collections=False)

    # -- validation ------------------------------------------------------------------------------

    @validates("tags")
    def _valid_tags(self, _key: str, tags: Any) -> list[str]:
        return known_tags(tags)

    @validates("agent")
    def _valid_agent(self, _key: str, agent: MemoryOwner) -> MemoryOwner:
        if self.agent_id is not None and self.agent_id != agent.id:
            raise InvalidValue("a memory cannot move to another agent: it is sealed for its own")
        return agent

    @validates("memory_type")
    def _valid_type(self, _key: str, memory_type: Any) -> str:
        if memory_type not in MEMORY_TYPES:
            raise InvalidValue(f"memory_type must be one of {', '.join(MEMORY_TYPES)}")
        return str(memory_type)
