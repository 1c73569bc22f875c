"""Images: a memory's full row, as an audit record keeps it before and after a change.

Images make exact reversals possible. The public part of an image (ids, dates, flags, figures) goes
into a record's ``data``, its contents into ``sealed``. The *state* of a memory is its content,
type, flag, tags, original date, and whether it is discarded; a keyed digest of the state tells
whether a memory is still as a session showed it, or as a record left it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from refine import clock
from refine.extensions import canonical_json
from refine.models.columns import DigestChange
from refine.models.ledger.kept import is_kept_core
from refine.sealing import DataKey

IMAGE_VERSION = 1

SEALED_FIELDS = ("content", "extra")
STATE_FIELDS = ("content", "memory_type", "constitutional", "tags", "created_at")

Image = dict[str, Any]


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
    return key.mac(canonical_json(state_of(image)), "agent_memories.state")


def state_of(image: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that an image shows; the time of a discard is no part of it."""
    state = {field: image[field] for field in STATE_FIELDS}
    state["discarded"] = image["discarded_at"] is not None
    return state


def recorded(changes: Iterable[Change], key: DataKey) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return changes as the ``data`` and the ``sealed`` part of a record."""
    shown, hidden = [], []
    for change in changes:
        before, sealed_before = _parts(change.before, key)
        after, sealed_after = _parts(change.after, key)
        shown.append({"id": change.memory_id, "before": before, "after": after})
        hidden.append({"id": change.memory_id, "before": sealed_before, "after": sealed_after})
    return {"image_version": IMAGE_VERSION, "memories": shown}, {"memories": hidden}


def changes_in(data: Mapping[str, Any], sealed: Mapping[str, Any]) -> list[Change]:
    """Return the changes that a record holds; the inverse of ``recorded``."""
    if "image_version" not in data:
        return []
    return [
        Change(
            memory_id=public_part["id"],
            before=_joined(public_part["before"], sealed_part["before"]),
            after=_joined(public_part["after"], sealed_part["after"]) or {},
        )
        for public_part, sealed_part in zip(
            data.get("memories", []), sealed.get("memories", []), strict=True
        )
    ]


def recorded_digests(data: Mapping[str, Any]) -> dict[int, DigestChange]:
    """Return the state digests of a record's memories, before and after it, by memory id."""
    return {
        memory["id"]: (
            memory["before"]["digest"] if memory["before"] is not None else None,
            memory["after"]["digest"],
        )
        for memory in data.get("memories", [])
    }


def mass_of(image: Image | None) -> int:
    """Return what a memory in this state contributes to the token mass."""
    return int(image["token_estimate"]) if image is not None and is_kept(image) else 0


def _parts(image: Image | None, key: DataKey) -> tuple[Image | None, Image | None]:
    """Return the public part of an image, with its digest, and the part to be sealed."""
    if image is None:
        return None, None
    shown = {**image, "digest": state_digest(image, key)}
    return shown, {field: shown.pop(field) for field in SEALED_FIELDS}


def _joined(public_part: Image | None, sealed_part: Image | None) -> Image | None:
    if public_part is None or sealed_part is None:
        return None
    return {key: value for key, value in {**public_part, **sealed_part}.items() if key != "digest"}


def is_kept(image: Image) -> bool:
    """Tell whether a memory in this state is a kept core memory."""
    return is_kept_core(image["memory_type"], image["discarded_at"])
