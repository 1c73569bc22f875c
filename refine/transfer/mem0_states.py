"""Which rows mem0 no longer shows.

The platform, the library and OpenMemory each have fields of their own for this.
"""

from collections.abc import Mapping
from typing import Any

from refine import clock
from refine.errors import InvalidValue
from refine.rules.instants import has_passed

_STATES = {
    "deleted": "deleted",
    "archived": "archived",
    "paused": "paused",
    "inactive": "paused",
    "expired": "expired",
    "replaced": "replaced",
    "superseded": "replaced",
    "outdated": "replaced",
    "invalid": "replaced",
}
_MARKS = {
    "is_deleted": "deleted",
    "deleted": "deleted",
    "deleted_at": "deleted",
    "is_archived": "archived",
    "archived": "archived",
    "archived_at": "archived",
    "is_paused": "paused",
    "paused": "paused",
    "superseded_by": "replaced",
    "replaced_by": "replaced",
    "superseded_at": "replaced",
    "invalid_at": "replaced",
    "is_superseded": "replaced",
}
_UNSET = ("", "0", "false", "no", "none", "null")
_EXPIRATIONS = ("expiration_date", "expires_at")
_FIELDS = frozenset({"event", "state", "status", *_MARKS, *_EXPIRATIONS})


def kind_left_out(row: Mapping[str, Any]) -> str | None:
    """Return why mem0 no longer shows the memory; None if it still does."""
    if _FIELDS.isdisjoint(row):
        return None
    if str(row.get("event")).upper() == "DELETE":
        return "deleted"
    states = [str(row.get(name)).strip().lower() for name in ("state", "status")]
    kinds = [_STATES[state] for state in states if state in _STATES]
    # OpenMemory keeps the date when a memory is made active again
    is_active = "active" in states
    kinds += [
        kind
        for name, kind in _MARKS.items()
        if _is_set(row.get(name)) and not (is_active and name == "archived_at")
    ]
    if any(_has_expired(row, name) for name in _EXPIRATIONS):
        kinds.append("expired")
    return kinds[0] if kinds else None


def _is_set(value: object) -> bool:
    return bool(value) and str(value).strip().lower() not in _UNSET


def _has_expired(row: Mapping[str, Any], name: str) -> bool:
    try:
        return has_passed(row.get(name), now=clock.now())
    except InvalidValue as error:
        raise InvalidValue(f"{name} {error}") from None
