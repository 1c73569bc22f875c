"""Images: a memory's row before and after a change, for exact reversals; ``after`` keeps only
differences. Its *state*: content, type, flag, tags, original date, and whether it is discarded.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal

from sqlalchemy import ARRAY, Boolean, Column

from refine import clock
from refine.extensions import Base, canonical_json
from refine.models.columns import DigestChange
from refine.sealing import DataKey

IMAGE_VERSION = 1

Image = dict[str, Any]

# What an image leaves out: the record names the agent and the time, the rest follows.
_NOT_IN_IMAGE = {"agent_id", "content_hash", "updated_at", "row_digest"}
# What nobody can read, test a guess against, or ask about once the memory was erased.
_SEALED_FIELDS = {"content", "extra", "source_id"}
# In an image, but in no record: without it, texts and digests of the memory say nothing.
CONTENT_KEY = "content_key"


@cache
def image_fields() -> Mapping[str, Column[Any]]:
    columns = Base.metadata.tables["agent_memories"].columns
    return {column.name: column for column in columns if column.name not in _NOT_IN_IMAGE}


@cache
def _unset_fields() -> Image:
    types = {each: column.type for each, column in image_fields().items() if each != CONTENT_KEY}
    return {
        field: False if isinstance(type_, Boolean) else [] if isinstance(type_, ARRAY) else None
        for field, type_ in types.items()
    }


@dataclass(frozen=True)
class Change:
    """One memory's images around a change; ``before`` is None if the change created it."""

    memory_id: int
    before: Image | None
    after: Image

    @property
    def content_key(self) -> bytes:
        key: bytes = (self.before or self.after)[CONTENT_KEY]
        return key

    def altered(self) -> Image:
        """Return the altered fields as they were before."""
        before = self.before or {}
        return {field: value for field, value in before.items() if self.after[field] != value}

    def reversed_onto(self, present: Image, at: datetime, keep: Collection[str] = ()) -> Image:
        """Put altered fields back, except ``keep``; a created memory is discarded."""
        if self.before is None:
            return {**present, "discarded_at": present["discarded_at"] or clock.iso(at)}
        altered = self.altered().items()
        return {**present, **{field: value for field, value in altered if field not in keep}}

    @property
    def mass_difference(self) -> int:
        """How the change alters the token mass."""
        return mass_of(self.after) - mass_of(self.before)

    @property
    def count_difference(self) -> int:
        """How the change alters the number of kept core memories; 0 for a created one."""
        return 0 if self.before is None else is_kept(self.after) - is_kept(self.before)


def retired(
    image: Image,
    reason: Literal["same", "outdated", "wrong"],
    successor_id: int | None,
    at: datetime,
) -> Image:
    """Return the image of a memory as it is discarded, and retired unless it says the ``same``."""
    discarded = {**image, "discarded_at": clock.iso(at), "replaced_by_id": successor_id}
    return discarded if reason == "same" else {**discarded, "retired_reason": reason}


def state_digest(image: Mapping[str, Any], key: DataKey) -> str:
    """Without the memory's key, which is random, nobody can tell what was digested."""
    key_text = (image[CONTENT_KEY] or b"").hex()
    return key.mac(canonical_json([state_of(image), key_text]), "agent_memories.state")


def state_of(image: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state in an image, without the time of a discard."""
    fields = ("content", "memory_type", "constitutional", "tags", "created_at")
    state = {field: image[field] for field in fields}
    return {**state, "discarded": image["discarded_at"] is not None}


def days_in(image: Image) -> str:
    """Return the ``days`` of the memory in an image."""
    first, last = image["created_at"], image["spans_until"] or image["created_at"]
    return clock.days(datetime.fromisoformat(first), datetime.fromisoformat(last))


def recorded(changes: Iterable[Change], key: DataKey) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``data`` and ``sealed`` for a record of changes."""
    shown, hidden, unset = [], [], _unset_fields()
    for change in changes:
        public: Image = {"id": change.memory_id}
        contents: Image = {"id": change.memory_id}
        known = {**unset, "id": change.memory_id}
        for side, image in (("before", change.before), ("after", change.after)):
            if image is not None:
                stored = {field: image[field] for field in unset if image[field] != known[field]}
                contents[side] = {each: stored.pop(each) for each in _SEALED_FIELDS & set(stored)}
                public[side] = {**stored, "digest": state_digest(image, key)}
                known = image
        shown.append(public)
        hidden.append(contents)
    return {"image_version": IMAGE_VERSION, "memories": shown}, {"memories": hidden}


def changes_in(data: Mapping[str, Any], sealed: Mapping[str, Any]) -> list[Change]:
    """Return the changes that a record holds, but of erased memories: see ``recorded``."""
    contents = {memory["id"]: memory for memory in contents_in(sealed)}
    return [
        Change(
            id_, _joined(public, contents[id_], "before"), _joined(public, contents[id_], "after")
        )
        for public in images_in(data)
        if (id_ := public["id"]) in contents
    ]


def _joined(public: Image, contents: Image, side: str) -> Any:
    if public[side] is None:
        return None
    image = {**public[side], **contents[side]}
    del image["digest"]
    return image


def images_in(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    unset = {each: value for each, value in _unset_fields().items() if each not in _SEALED_FIELDS}
    return [_whole(memory, {**unset, "id": memory["id"]}) for memory in data.get("memories", [])]


def contents_in(sealed: Mapping[str, Any]) -> list[dict[str, Any]]:
    unset: Image = dict.fromkeys(_SEALED_FIELDS)
    return [_whole(memory, unset) for memory in sealed.get("memories", [])]


def _whole(memory: Mapping[str, Any], unset: Image) -> dict[str, Any]:
    before = {**unset, **memory["before"]} if "before" in memory else None
    return {"id": memory["id"], "before": before, "after": {**(before or unset), **memory["after"]}}


def recorded_digests(data: Mapping[str, Any]) -> dict[int, DigestChange]:
    """Return the state digests of a record's memories, before and after it, by memory id."""
    return {
        memory["id"]: (memory.get("before", {}).get("digest"), memory["after"]["digest"])
        for memory in data.get("memories", [])
    }


def mass_of(image: Image | None) -> int:
    return int(image["token_estimate"]) if image is not None and is_kept(image) else 0


def is_kept(image: Image) -> bool:
    return is_kept_core(image["memory_type"], image["discarded_at"])


def is_kept_core(memory_type: str, discarded_at: object) -> bool:
    return memory_type == "core" and discarded_at is None
