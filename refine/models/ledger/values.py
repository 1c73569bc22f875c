"""What a memory is, by the values of its row: sealed content, image, and digests."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from refine import clock
from refine.errors import RowAltered
from refine.extensions import columns_json
from refine.models.columns import SealedText, place_of
from refine.models.ledger.image import Image, state_digest
from refine.rules.content import IMMUTABLE_TAGS, comparable, memory_content, storable_or_none
from refine.rules.tokens import token_estimate
from refine.sealing import DataKey, Place

# What locks a memory, in the order in which it is reported.
Lock = Literal["constitutional", "immutable"]
LOCKS: tuple[Lock, ...] = get_args(Lock)


def content_hash(content: str, key: DataKey) -> str:
    """Return the keyed hash by which exact duplicates are found: see ``comparable``."""
    return key.mac(comparable(content), "agent_memories.content_hash")


class MemoryValues:
    """A memory's row, be it an entity (``row``) or plain values (``stored``).

    Setting ``content`` seals it and sets ``content_hash`` and ``token_estimate``.
    """

    __tablename__ = "agent_memories"

    if TYPE_CHECKING:
        id: Any
        agent_id: Any
        memory_type: Any
        sealed_content: Any
        constitutional: Any
        tags: Any
        content_hash: Any
        token_estimate: Any
        discarded_at: Any
        created_at: Any
        recorded_at: Any
        updated_at: Any
        source: Any
        source_id: Any
        sealed_extra: Any
        session_id: Any
        row_digest: Any

        def data_key(self) -> DataKey:
            """Return the key of the agent who owns this memory."""

        def _is_changed(self) -> bool:
            """Tell whether a field was set to another value."""

    extra = SealedText(storable_or_none)

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

    @property
    def edit_lock(self) -> Lock | None:
        """What keeps sessions from deleting, merging or rewriting it: its flag, or a tag."""
        if self.constitutional:
            return "constitutional"
        return None if IMMUTABLE_TAGS.isdisjoint(self.tags) else "immutable"

    def ledger_entry(self, key: DataKey | None = None) -> dict[str, Any]:
        """Return the memory as JSON values, as a session shows it to the agent.

        ``key``: the agent's, if the caller has already opened it.
        """
        return {
            "id": self.id,
            "date": str(clock.iso(self.created_at))[:10],
            "tokens": self.token_estimate,
            "constitutional": self.constitutional,
            "tags": list(self.tags),
            "content": self.content_under(key or self.data_key()),
        }

    def dated_content(self) -> dict[str, str]:
        """Return date and content, as the agent's model reads what it need not refer to."""
        return {"date": f"{self.created_at:%Y-%m-%d}", "content": self.content}

    # -- images ----------------------------------------------------------------------------------

    def image(self) -> Image:
        """Return the row of a flushed memory as JSON values, contents in clear.

        All of it, except the agent, which the record names, and keyed hashes and the time of the
        last change, which follow from the rest.
        """
        return self.image_saying(self.content, self.extra)

    def image_saying(self, content: str, extra: str | None) -> Image:
        """Return ``image``; the caller knows what the row holds sealed."""
        return {
            "id": self.id,
            "memory_type": self.memory_type,
            "content": content,
            "constitutional": self.constitutional,
            "tags": list(self.tags),
            "token_estimate": self.token_estimate,
            "discarded_at": clock.iso(self.discarded_at),
            "created_at": clock.iso(self.created_at),
            "recorded_at": clock.iso(self.recorded_at),
            "source": self.source,
            "source_id": self.source_id,
            "extra": extra,
            "session_id": str(self.session_id) if self.session_id else None,
        }

    def image_with(self, content: str) -> Image:
        """Return the image that this memory would have with another (valid) content."""
        return {
            **self.image(),
            "content": content,
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
        if self._is_changed():
            self.updated_at = at

    @property
    def state_digest(self) -> str:
        """The keyed digest of the memory's state (see ``image``)."""
        return self.state_digest_under(self.data_key())

    def state_digest_under(self, key: DataKey) -> str:
        """Return ``state_digest``; ``key`` is the agent's."""
        facts = {
            "content": self.content_under(key),
            "memory_type": self.memory_type,
            "constitutional": self.constitutional,
            "tags": list(self.tags),
            "created_at": clock.iso(self.created_at),
            "discarded_at": clock.iso(self.discarded_at),
        }
        return state_digest(facts, key)

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
        return bool(self.row_digest == self.digest_of_row(key))

    def sign(self) -> None:
        """Set the row's digest, after everything else that is to be written."""
        self.row_digest = self.digest_of_row()

    def digest_of_row(self, key: DataKey | None = None) -> str:
        """Return the keyed digest that ``row_digest`` must hold: it covers every column."""
        return (key or self.data_key()).mac(self._row_text(), "agent_memories.row")

    def _row_text(self) -> str:
        return columns_json(
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
