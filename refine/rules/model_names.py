"""Whether a reply comes from the model that was asked."""

import re
from typing import NamedTuple

# What OpenRouter appends to choose among the providers of one model; any other ``:tag`` (a size, on
# local servers) is part of the name.
_VARIANT = re.compile(r":(?:free|nitro|floor|extended|exacto|beta)$")
_MONTH_AND_DAY = r"(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])"
_DATE = re.compile(
    rf"[-@](?:20\d\d-?{_MONTH_AND_DAY}|{_MONTH_AND_DAY}|2\d(?:0[1-9]|1[0-2]))(?![\w.-])"
)
_SEPARATORS = re.compile(r"[-_.@/: ]+")


class _Name(NamedTuple):
    author: str
    words: list[str]
    numbers: list[str]
    date: str | None


def is_same_model(pinned: str, answered: str | None) -> bool:
    """Tell whether ``answered`` names the model ``pinned``; a reply that names none is taken as it.

    A dated or canonical name counts as the model: ``anthropic/claude-4-sonnet-20250522`` is
    ``anthropic/claude-sonnet-4``, ``gpt-4o-2024-08-06`` is ``openai/gpt-4o``, ``gpt-4-0613`` is
    ``openai/gpt-4``. Words may move, numbers may not: ``gpt-4.5`` is not ``gpt-5.4``. A dated pin
    is answered by its own date alone, and no model by another author's.
    """
    if answered is None or answered.casefold() == pinned.casefold():
        return True
    asked, came = _read(pinned), _read(answered)
    if asked.author and came.author and asked.author != came.author:
        return False
    if asked.date is not None and asked.date != came.date:
        return False
    return (asked.words, asked.numbers) == (came.words, came.numbers)


def _read(name: str) -> _Name:
    author, _, bare = _VARIANT.sub("", name.casefold()).rpartition("/")
    date = _DATE.search(bare)
    if date is not None:
        bare = bare[: date.start()] + bare[date.end() :]
    parts = [part for part in _SEPARATORS.split(bare) if part]
    has_digit = [any(character.isdigit() for character in part) for part in parts]
    return _Name(
        author,
        sorted(part for part, digit in zip(parts, has_digit, strict=True) if not digit),
        [part for part, digit in zip(parts, has_digit, strict=True) if digit],
        date.group().strip("-@").replace("-", "") if date is not None else None,
    )
