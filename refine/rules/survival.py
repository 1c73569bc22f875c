"""What an edit must keep: the details of every text that it touches, and half of its words.

An *original* is a text that the ledger must continue to say: what a memory said when the session
began, or before an earlier session removed or rewrote it. A kept memory *carries* a detail of an
original if it mentions it and speaks of the same thing (``details.carries``).
"""

from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from refine.rules.details import Reading, carries, likeness, mentions
from refine.rules.quantities import abbreviated

T = TypeVar("T")


class Repeatable(Generic[T]):
    """Takes items from a source only when they are first asked for, and keeps them."""

    def __init__(self, source: Iterable[T]) -> None:
        self._source = iter(source)
        self._taken: list[T] = []

    def __iter__(self) -> Iterator[T]:
        position = 0
        while True:
            if position == len(self._taken):
                try:
                    self._taken.append(next(self._source))
                except StopIteration:
                    return
            yield self._taken[position]
            position += 1


_SHOWN_CHARACTERS = 200


class Original(NamedTuple):
    """What the memory with this id said."""

    memory_id: int
    reading: Reading


class Loss(NamedTuple):
    """What an edit would lose of an original: details, as written there, and too many words."""

    memory_id: int
    details: tuple[str, ...]
    loses_words: bool


def losses(
    originals: Iterable[Original],
    removed: Collection[Reading],
    remaining: Iterable[Reading],
    *,
    share: Decimal,
) -> list[Loss]:
    """Return what is lost if ``removed`` goes and only ``remaining`` is kept.

    Only what ``removed`` carried can be lost: an edit is not blamed for an original that was gone
    before. ``share``, 0 to 1, is how much of an original's words must stand in one memory.
    ``remaining`` is read several times, each time only until what is looked for is found.
    """
    found = []

    @cache
    def mentioning(key: str) -> Repeatable[Reading]:
        return Repeatable(reading for reading in remaining if mentions(reading, key))

    for memory_id, original in originals:
        details = tuple(
            written
            for key, written in original.details.items()
            if _is_carried(removed, key, original)
            and not _is_carried(mentioning(key), key, original)
        )
        loses_words = _is_alike(removed, original, share) and not _is_alike(
            remaining, original, share
        )
        if details or loses_words:
            found.append(Loss(memory_id, details, loses_words))
    return found


def refusal(lost: Iterable[Loss], share: Decimal) -> str:
    """Return the words that tell a model what an edit would lose, and what to do."""
    found = list(lost)
    details = [_named(loss) for loss in found if loss.details]
    wordless = [f"#{loss.memory_id}" for loss in found if loss.loses_words]
    problems = []
    if details:
        problems.append(
            f"details would be lost: {abbreviated(details, '; ')}. Put them into the text together "
            "with what they belong to, or leave the memory as it is"
        )
    if wordless:
        problems.append(
            f"less than {share * 100:.0f} % of the words of {abbreviated(wordless, ', ')} would "
            "remain in one memory. Keep more of the wording, or leave the memory as it is"
        )
    return f"Nothing was changed: {'. Also, '.join(problems)}"


def _is_carried(readings: Iterable[Reading], key: str, original: Reading) -> bool:
    return any(carries(reading, key, original) for reading in readings)


def _is_alike(readings: Iterable[Reading], original: Reading, share: Decimal) -> bool:
    return any(likeness(original, reading) >= share for reading in readings)


def _named(loss: Loss) -> str:
    details = [f'"{_shown(detail)}"' for detail in loss.details]
    return f"{abbreviated(details, ', ')} from #{loss.memory_id}"


def _shown(detail: str) -> str:
    """Return a detail; of a long quotation, the beginning."""
    return detail if len(detail) <= _SHOWN_CHARACTERS else f"{detail[:_SHOWN_CHARACTERS]}…"
