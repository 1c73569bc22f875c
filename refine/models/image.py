"""Images: a memory's full row, as an audit record keeps it before and after a change.

An image is what an exact reversal needs. Its open part (ids, dates, flags, figures) goes into a
record's ``data``, its contents into ``sealed``. The *state* of a memory is content, type, flag,
tags, origin date, and discarded or not; its keyed digest tells whether a memory is still what a
session showed, or what a record left.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from refine.extensions import canonical_json
from refine.sealing import DataKey

if TYPE_CHECKING:
    from refine.models.memory import AgentMemory

IMAGE_VERSION = 1

SEALED_FIELDS = ("content", "extra")
STATE_FIELDS = ("content", "memory_type", "constitutional", "tags", "created_at")

Image = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One memory's images around a change; ``before`` is None where the change made it."""

    memory_id: int
    before: Image | None
    after: Image

    def altered(self) -> Image:
        """Return the fields that the change altered, as they were before it."""
        before = self.before or {}
        return {field: value for field, value in before.items() if self.after[field] != value}

    def reversed_onto(self, present: Image, at: datetime, but: Collection[str] = ()) -> Image:
        """Return ``present`` with just the fields put back that this change altered, ``but`` those.

        A memory that the change made is discarded: nothing is ever deleted.
        """
        if self.before is None:
            return {**present, "discarded_at": present["discarded_at"] or iso(at)}
        altered = self.altered().items()
        return {**present, **{field: value for field, value in altered if field not in but}}

    @property
    def mass_difference(self) -> int:
        """What the change adds to the token mass; 0 where it made the memory (counted already)."""
        return (
            0 if self.before is None else counted_tokens(self.after) - counted_tokens(self.before)
        )

    @property
    def count_difference(self) -> int:
        """What the change adds to the number of kept core memories; 0 where it made the memory."""
        return 0 if self.before is None else _is_kept_core(self.after) - _is_kept_core(self.before)


def image_of(memory: "AgentMemory") -> Image:
    """Return the full row of a flushed memory as JSON values, contents in clear."""
    return {
        "id": memory.id,
        "agent_id": memory.agent_id,
        "memory_type": memory.memory_type,
        "content": memory.content,
        "constitutional": memory.constitutional,
        "tags": list(memory.tags),
        "token_estimate": memory.token_estimate,
        "content_hash": memory.content_hash,
        "discarded_at": iso(memory.discarded_at),
        "created_at": iso(memory.created_at),
        "recorded_at": iso(memory.recorded_at),
        "source": memory.source,
        "source_id": memory.source_id,
        "extra": memory.extra,
        "session_id": str(memory.session_id) if memory.session_id else None,
    }


def state_digest(image: Mapping[str, Any], key: DataKey) -> str:
    """Return the keyed digest of the state that an image shows."""
    return key.mac(canonical_json(state_of(image)), "agent_memories.state")


def state_of(image: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes two images show the same state: when it was discarded does not matter."""
    state = {field: image[field] for field in STATE_FIELDS}
    return {**state, "discarded": image["discarded_at"] is not None}


def recorded(changes: Iterable[Change], key: DataKey) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return changes as the ``data`` and the ``sealed`` part of a record."""
    listed = list(changes)
    data = {
        "image_version": IMAGE_VERSION,
        "memories": [
            {
                "id": change.memory_id,
                "before": _open_part(change.before, key),
                "after": _open_part(change.after, key),
            }
            for change in listed
        ],
    }
    sealed = {
        "memories": [
            {
                "id": change.memory_id,
                "before": _sealed_part(change.before),
                "after": _sealed_part(change.after),
            }
            for change in listed
        ]
    }
    return data, sealed


def changes_in(data: Mapping[str, Any], sealed: Mapping[str, Any]) -> list[Change]:
    """Return the changes that a record holds, none where it holds no images.

    The inverse of ``recorded``.
    """
    if "image_version" not in data:
        return []
    return [
        Change(
            memory_id=open_part["id"],
            before=_joined(open_part["before"], sealed_part["before"]),
            after=_joined(open_part["after"], sealed_part["after"]) or {},
        )
        for open_part, sealed_part in zip(
            data.get("memories", []), sealed.get("memories", []), strict=True
        )
    ]


def counted_tokens(image: Image | None) -> int:
    """Return what a memory in the state of an image adds to the token mass."""
    return int(image["token_estimate"]) if image is not None and _is_kept_core(image) else 0


def iso(at: datetime | None) -> str | None:
    """Return the one spelling of an instant that is stored in images and hashed."""
    return at.astimezone(UTC).isoformat(timespec="microseconds") if at is not None else None


def _open_part(image: Image | None, key: DataKey) -> Image | None:
    if image is None:
        return None
    shown = {field: value for field, value in image.items() if field not in SEALED_FIELDS}
    return {**shown, "digest": state_digest(image, key)}


def _sealed_part(image: Image | None) -> Image | None:
    return None if image is None else {field: image[field] for field in SEALED_FIELDS}


def _joined(open_part: Image | None, sealed_part: Image | None) -> Image | None:
    if open_part is None or sealed_part is None:
        return None
    return {key: value for key, value in {**open_part, **sealed_part}.items() if key != "digest"}


def _is_kept_core(image: Image) -> bool:
    return image["memory_type"] == "core" and image["discarded_at"] is None
