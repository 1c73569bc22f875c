"""What a memory's row holds: sealed content, derived columns, and a digest of the row."""

import uuid
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

from sqlalchemy import BigInteger, ForeignKey, Sequence, Text, inspect, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.mutable import MutableList
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship, validates

from refine import clock
from refine.errors import InvalidValue, RowAltered
from refine.extensions import canonical_json, db
from refine.models.audit import Chain
from refine.models.columns import BoolFalse, Created, Sealed, SealedText, place_of
from refine.models.ledger.image import Image, state_digest
from refine.rules.content import comparable, known_tags, memory_content, storable_or_none
from refine.rules.tokens import token_estimate
from refine.sealing import DataKey, Place

MemoryType = Literal["core", "journal"]
MEMORY_TYPES: tuple[MemoryType, ...] = ("core", "journal")

# How long a journal memory is shown to its agent. Prompts, tools and pages say "one week" and "the
# last week".
JOURNAL_SHOWN_FOR = timedelta(weeks=1)

ID_SEQUENCE = Sequence("agent_memories_id_seq")


class MemoryOwner(Protocol):
    """The agent to whom memories belong, as far as they need to know it."""

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


def content_hash(content: str, key: DataKey) -> str:
    """Return the keyed hash by which exact duplicates are found (trimmed, lower-cased)."""
    return key.mac(comparable(content), "agent_memories.content_hash")


class MemoryRow:
    """The columns of a memory.

    Setting ``content`` seals it and sets ``content_hash`` and ``token_estimate``.
    """

    __tablename__ = "agent_memories"

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
    session_id: Mapped[uuid.UUID | None] = mapped_column(
        ForeignKey("refinement_sessions.id"), index=True
    )
    row_digest: Mapped[str] = mapped_column(Text)

    extra = SealedText(storable_or_none)

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

    @property
    def content(self) -> str:
        """The text, decrypted."""
        return self.content_under(self.data_key())

    @content.setter
    def content(self, value: object) -> None:
        content, key = memory_content(value), self.data_key()
        place = self._place_of_content
        if self.sealed_content is not None and content == key.open(self.sealed_content, place):
            return
        self.sealed_content = key.seal(content, place)
        self.content_hash = content_hash(content, key)
        self.token_estimate = token_estimate(content)

    def content_under(self, key: DataKey) -> str:
        """Return the text, decrypted with the agent's key."""
        return key.open(self.sealed_content, self._place_of_content)

    @property
    def _place_of_content(self) -> Place:
        return place_of(self, "content")

    # -- images ----------------------------------------------------------------------------------

    def image(self) -> Image:
        """Return the full row of a flushed memory as JSON values, contents in clear."""
        return {
            "id": self.id,
            "agent_id": self.agent_id,
            "memory_type": self.memory_type,
            "content": self.content,
            "constitutional": self.constitutional,
            "tags": list(self.tags),
            "token_estimate": self.token_estimate,
            "content_hash": self.content_hash,
            "discarded_at": clock.iso(self.discarded_at),
            "created_at": clock.iso(self.created_at),
            "recorded_at": clock.iso(self.recorded_at),
            "source": self.source,
            "source_id": self.source_id,
            "extra": self.extra,
            "session_id": str(self.session_id) if self.session_id else None,
        }

    def image_with(self, content: str) -> Image:
        """Return the image that this memory would have with another (valid) content."""
        return {
            **self.image(),
            "content": content,
            "content_hash": content_hash(content, self.data_key()),
            "token_estimate": token_estimate(content),
        }

    def apply(self, image: Image, at: datetime) -> None:
        """Set every field that a change can alter to its value in ``image``, as of ``at``."""
        self.content = image["content"]
        self.memory_type = image["memory_type"]
        self.constitutional = image["constitutional"]
        self.tags = list(image["tags"])
        self.created_at = datetime.fromisoformat(image["created_at"])
        discarded_at = image["discarded_at"]
        self.discarded_at = datetime.fromisoformat(discarded_at) if discarded_at else None
        if db.session.is_modified(self, include_collections=False):
            self.updated_at = at

    @property
    def state_digest(self) -> str:
        """The keyed digest of the memory's state (see ``image``)."""
        return self.state_digest_under(self.data_key())

    def state_digest_under(self, key: DataKey) -> str:
        """Return ``state_digest``; ``key`` is the agent's."""
        state = {
            "content": self.content_under(key),
            "memory_type": self.memory_type,
            "constitutional": self.constitutional,
            "tags": list(self.tags),
            "created_at": clock.iso(self.created_at),
            "discarded_at": clock.iso(self.discarded_at),
        }
        return state_digest(state, key)

    @property
    def is_genuine(self) -> bool:
        """Whether the row is as the application left it; changes to be flushed do not count."""
        return self.is_genuine_under(self.data_key())

    def require_genuine(self, key: DataKey) -> None:
        """Raise RowAltered unless ``is_genuine``; ``key`` is the agent's."""
        if not self.is_genuine_under(key):
            raise RowAltered(f"memory {self.id}")

    def is_genuine_under(self, key: DataKey) -> bool:
        """Tell whether ``is_genuine``; ``key`` is the agent's."""
        return inspect(self).modified or self.row_digest == self.digest_of_row(key)

    def digest_of_row(self, key: DataKey | None = None) -> str:
        """Return the keyed digest that ``row_digest`` must hold: it covers every column."""
        return (key or self.data_key()).mac(self._row_text(), "agent_memories.row")

    def _row_text(self) -> str:
        return canonical_json(
            [
                self.id,
                self.agent_id,
                self.memory_type,
                self.sealed_content.hex(),
                self.constitutional,
                list(self.tags),
                self.content_hash,
                self.token_estimate,
                clock.iso(self.discarded_at),
                clock.iso(self.created_at),
                clock.iso(self.recorded_at),
                clock.iso(self.updated_at),
                self.source,
                self.source_id,
                self.sealed_extra.hex() if self.sealed_extra is not None else None,
                str(self.session_id) if self.session_id else None,
            ]
        )

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
