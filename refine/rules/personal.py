"""Ids that others chose, and that may be somebody's address or phone number."""

import re
from typing import Any

_ID_ENDINGS = ("_id", "_ids")

# Begins only where a word does: a long text without an @ would be searched from each character.
_MAIL = re.compile(r"(?<![^\s@])[^\s@]+@[^\s@]+\.[A-Za-z]{2,}")
# Digits as people write them, perhaps behind a scheme such as ``tel:``, or anything with a ``+``.
_PHONE = re.compile(r"(?:\w+:)?[\d\s()./-]{7,}|.*\+[\d\s()./-]{7,}.*", re.ASCII)
_MIN_PHONE_DIGITS = 7

HIDDEN_ID = "hidden: it looks like an address or a phone number"


def looks_personal(id_: str) -> bool:
    is_phone = _PHONE.fullmatch(id_.strip()) and sum(map(str.isdigit, id_)) >= _MIN_PHONE_DIGITS
    return bool(is_phone or _MAIL.search(id_))


def masked_id(id_: str) -> str:
    """Return an id as pages may show it: one that looks personal is hidden."""
    return HIDDEN_ID if looks_personal(id_) else id_


def mask_ids(value: object, *, is_id: bool = False) -> Any:
    """Return JSON data with its ids masked by ``masked_id``; the names of fields tell the ids."""
    match value:
        case dict():
            return {
                key: mask_ids(each, is_id=key in ("id", "ids") or key.endswith(_ID_ENDINGS))
                for key, each in value.items()
            }
        case list():
            return [mask_ids(each, is_id=is_id) for each in value]
        case str() if is_id:
            return masked_id(value)
    return value
