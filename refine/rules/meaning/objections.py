"""What an edit leaves out, adds or changes: all objections to it, as data."""

from collections.abc import Iterable
from typing import NamedTuple

from refine.rules.quantities import abbreviated

# Right on every edit that we know; objections of other kinds may be doubtful.
SURE = frozenset(
    {"run", "unit", "code", "negation", "condition", "occasion", "name added", "unit changed",
     "word added", "order", "exchange", "code added"}
)  # fmt: skip

_SHOWN_CHARACTERS = 200
_ADVICE = {
    "nothing": "no other memory says what {memory} says",
    "words": "too little of {memory} would remain in one memory: add {needed} of {words}",
    "run": "a passage of {memory} would be missing: {words}",
    "detail": "{memory} would lose {words}",
    "name": "{memory} would lose {words}",
    "list": "{memory} would lose {words} from a list",
    "code": "{memory} would lose {words}, letter for letter",
    "unit": "the unit of {words} in {memory} would be lost",
    "detail added": "{words} stands in none of the memories",
    "name added": "{words} stands in none of the memories",
    "word added": "{words} is new: an update may only tighten",
    "code added": "{words} stands in none of the memories, letter for letter",
    "unit changed": "{words} has another unit in the memories",
    "negation": "what is denied and what is not would change",
    "condition": "a condition would be dropped or added",
    "hedge": "how sure it is would change",
    "order": "only the order of the words differs, and with it what they say",
    "exchange": "{words} would change places",
    "occasion": "two occasions would become one",
}


class Objection(NamedTuple):
    """One fault of an edit: its memory, the words, and how many of them are ``needed``."""

    kind: str
    words: tuple[str, ...] = ()
    memory_id: int | None = None
    needed: int = 0

    @property
    def is_sure(self) -> bool:
        return self.kind in SURE

    def __str__(self) -> str:
        words = abbreviated([f'"{_shown(word)}"' for word in self.words], ", ")
        return _ADVICE[self.kind].format(
            memory=f"#{self.memory_id}", words=words, needed=self.needed
        )


def refusal(objections: Iterable[Objection]) -> str:
    """Return the message for a model: all faults of its edit, and the remedy."""
    told = abbreviated([str(each) for each in objections], "; ")
    return (
        f"Nothing was changed: {told}. Put in what is missing, take out what is new, or leave the "
        "memory as it is"
    )


def details_lost(objections: Iterable[Objection]) -> int:
    """Return how many details, names and list items an edit leaves out."""
    kinds = {"nothing", "detail", "name", "list", "code"}
    return len({word for each in objections if each.kind in kinds for word in each.words})


def _shown(words: str) -> str:
    return words if len(words) <= _SHOWN_CHARACTERS else f"{words[:_SHOWN_CHARACTERS]}…"
