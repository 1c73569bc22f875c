"""Images: a memory's full row, as an audit record keeps it before and after a change.

Images make exact reversals possible. The public part of an image (ids, dates, flags, figures) goes
into a record's ``data``, its contents into ``sealed``. The *state* of a memory is its content,
type, flag, tags, original date, and whether it is discarded; a keyed digest of the state tells
whether a memory is still as a session showed it, or as a record left it.

A record stores nothing twice: ``after`` holds what differs from ``before``, unset fields are left
out, and a memory was recorded when it was created unless another time is given.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ARRAY, Boolean, Column, LargeBinary

from refine import clock
from refine.extensions import Base, columns_json
from refine.models.columns import DigestChange
from refine.sealing import DataKey

IMAGE_VERSION = 1

STATE_FIELDS = ("content", "memory_type", "constitutional", "tags", "created_at")

Image = dict[str, Any]

# What an image leaves out, and why.
NOT_IN_IMAGE = {
    "agent_id": "the record names it",
    "content_hash": "follows from the content",
    "updated_at": "the time of the record",
    "row_digest": "follows from the rest",
}


@cache
def image_fields() -> Mapping[str, Column[Any]]:
    """Return the fields of an image: every column of the table but those of ``NOT_IN_IMAGE``."""
    columns = Base.metadata.tables["agent_memories"].columns
    return {column.name: column for column in columns if column.name not in NOT_IN_IMAGE}


def is_sealed_field(field: str) -> bool:
    """Tell whether a field holds content, which records seal."""
    return isinstance(image_fields()[field].type, LargeBinary)


@cache
def _unset_fields() -> Image:
    """Return what the fields that may be left out of a stored image then hold."""
    return {
        field: False if isinstance(column.type, Boolean) else [] if _is_list(column) else None
        for field, column in image_fields().items()
        if column.nullable or isinstance(column.type, Boolean) or _is_list(column)
    }


def _is_list(column: Column[Any]) -> bool:
    return isinstance(column.type, ARRAY)


@dataclass(frozen=True)
class Change:
    """One memory's images around a change; ``before`` is None if the change created it."""

    memory_id: int
    before: Image | None
    after: Image

    def altered(self) -> Image:
        """Return the fields that the change altered, as they were before it."""
        before = self.before or {}
        return {field: value for field, value in before.items() if self.after[field] != value}

    def reversed_onto(self, present: Image, at: datetime, keep: Collection[str] = ()) -> Image:
        """Return ``present`` with the altered fields put back, except for those in ``keep``.

        A memory that the change created is discarded, because nothing is ever deleted.
        """
        if self.before is None:
            return {**present, "discarded_at": present["discarded_at"] or clock.iso(at)}
        altered = self.altered().items()
        return {**present, **{field: value for field, value in altered if field not in keep}}

    @property
    def mass_difference(self) -> int:
        """How the change alters the token mass; 0 for a created memory, already in the mass."""
        return 0 if self.before is None else mass_of(self.after) - mass_of(self.before)

    @property
    def count_difference(self) -> int:
        """How the change alters the number of kept core memories; 0 for a created one."""
        return 0 if self.before is None else is_kept(self.after) - is_kept(self.before)


def state_digest(image: Mapping[str, Any], key: DataKey) -> str:
    """Return the keyed digest of the state that an image shows."""
    return key.mac(columns_json(state_of(image)), "agent_memories.state")


def state_of(image: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that an image shows; the time of a discard is not part of it."""
    state = {field: image[field] for field in STATE_FIELDS}
    state["discarded"] = image["discarded_at"] is not None
    return state


def recorded(changes: Iterable[Change], key: DataKey) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return changes as the ``data`` and the ``sealed`` part of a record."""
    shown, hidden = [], []
    for change in changes:
        public: Image = {"id": change.memory_id}
        contents: Image = {"id": change.memory_id}
        if (before := change.before) is not None:
            public["before"], contents["before"] = _parts(before, _implied(before), key)
        known = before or _implied(change.after)
        public["after"], contents["after"] = _parts(change.after, known, key)
        shown.append(public)
        hidden.append(contents)
    return {"image_version": IMAGE_VERSION, "memories": shown}, {"memories": hidden}


def changes_in(data: Mapping[str, Any], sealed: Mapping[str, Any]) -> list[Change]:
    """Return the changes that a record holds; the inverse of ``recorded``."""
    if "image_version" not in data:
        return []
    return [
        Change(
            memory_id=public["id"],
            before=_joined(public["before"], contents["before"]) if public["before"] else None,
            after=_joined(public["after"], contents["after"]),
        )
        for public, contents in zip(images_in(data), contents_in(sealed), strict=True)
    ]


def images_in(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the public part of a record's images, with every field."""
    return [_whole(memory, _implied_in(memory)) for memory in data.get("memories", [])]


def contents_in(sealed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the sealed part of a record's images, with every field."""
    unset = {field: value for field, value in _unset_fields().items() if is_sealed_field(field)}
    return [_whole(memory, unset) for memory in sealed.get("memories", [])]


def recorded_digests(data: Mapping[str, Any]) -> dict[int, DigestChange]:
    """Return the state digests of a record's memories, before and after it, by memory id."""
    return {
        memory["id"]: (
            memory["before"]["digest"] if memory.get("before") is not None else None,
            memory["after"]["digest"],
        )
        for memory in data.get("memories", [])
    }


def mass_of(image: Image | None) -> int:
    """Return what a memory in this state contributes to the token mass."""
    return int(image["token_estimate"]) if image is not None and is_kept(image) else 0


def _implied(image: Image) -> Image:
    """Return what need not be stored of an image that stands for itself."""
    return {**_unset_fields(), "recorded_at": image["created_at"]}


def _parts(image: Image, known: Image, key: DataKey) -> tuple[Image, Image]:
    """Return the public part of an image, with its digest, and the part to be sealed.

    Fields that are as in ``known`` are left out.
    """
    shown = {
        field: value
        for field, value in image.items()
        if field != "id" and (field not in known or known[field] != value)
    }
    sealed = {field: shown.pop(field) for field in list(shown) if is_sealed_field(field)}
    return {**shown, "digest": state_digest(image, key)}, sealed


def _implied_in(memory: Mapping[str, Any]) -> Image:
    first = memory.get("before") or memory["after"]
    unset = {field: value for field, value in _unset_fields().items() if not is_sealed_field(field)}
    return {**unset, "id": memory["id"], "recorded_at": first["created_at"]}


def _whole(memory: Mapping[str, Any], implied: Image) -> dict[str, Any]:
    """Return a stored memory with all fields of its images; ``before`` is None for a new one."""
    stored = memory.get("before")
    before = None if stored is None else {**implied, **stored}
    after = {**(before or implied), **memory["after"]}
    return {"id": memory["id"], "before": before, "after": after}


def _joined(public: Image, contents: Image) -> Image:
    return {field: value for field, value in {**public, **contents}.items() if field != "digest"}


def is_kept(image: Image) -> bool:
    """Tell whether a memory in this state is a kept core memory."""
    return is_kept_core(image["memory_type"], image["discarded_at"])


def is_kept_core(memory_type: str, discarded_at: object) -> bool:
    """Tell whether these make a kept core memory."""
    return memory_type == "core" and discarded_at is None
