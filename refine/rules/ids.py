"""Ids as people, URLs and language models write them."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from refine.errors import InvalidValue
from refine.rules.strict_json import strict_json

# Far more than one merge takes, and far fewer than a database takes in a list.
MAX_IDS = 1_000

# As people write them: every number of so many digits fits into a bigint.
_MAX_ID_DIGITS = 18
MAX_ID = 10**_MAX_ID_DIGITS - 1
_ID = re.compile(rf"[0-9]{{1,{_MAX_ID_DIGITS}}}")
_NUMBERED = re.compile(rf"#?({_ID.pattern})")
_Row = TypeVar("_Row")
_EXPECTED = "use a number such as 7, or a list such as [7, 9]"


def id_in(text: str) -> int | None:
    """Return ``text`` as an id; None if no row can have it."""
    return int(text) if _ID.fullmatch(text) else None


def best_matches(
    found: Sequence[_Row], reference: str, *keys: Callable[[_Row], str]
) -> Sequence[_Row]:
    """Return the rows with exactly this reference, by the first key that has any; otherwise all."""
    for key in keys:
        if exact := [row for row in found if key(row) == reference]:
            return exact
    return found


def parse_ids(value: object) -> list[int]:
    """Return the distinct ids in 7, "7", "#7", "7, 9", [7, 9] or "[7, 9]"; or InvalidValue."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(InvalidValue):
            value = strict_json(value, max_bytes=MAX_IDS * (_MAX_ID_DIGITS + 2))
    if isinstance(value, str):
        parts: list[object] = [part.strip() for part in value.split(",")]
    elif isinstance(value, list):
        parts = value
    else:
        parts = [value]
    if not parts:
        raise InvalidValue(f"no memory id given; {_EXPECTED}")
    if len(parts) > MAX_IDS:
        raise InvalidValue(f"too many memory ids; at most {MAX_IDS:,} per call")
    return list(dict.fromkeys(_parse_id(part) for part in parts))


def parse_single_id(value: object) -> int:
    ids = parse_ids(value)
    if len(ids) != 1:
        raise InvalidValue("id takes a single memory id")
    return ids[0]


def _parse_id(part: object) -> int:
    if type(part) is int:
        number = part if part <= MAX_ID else 0
    else:
        match = _NUMBERED.fullmatch(part.strip()) if isinstance(part, str) else None
        number = int(match.group(1)) if match else 0
    if number < 1:
        raise InvalidValue(f"invalid memory id; {_EXPECTED}")
    return number
