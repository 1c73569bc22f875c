"""What an edit leaves out, adds or changes: all objections to it, as data."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from refine.rules.quantities import abbreviated

_SHOWN_CHARACTERS = 200
_KINDS: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)


class Objection(NamedTuple):
    """One fault of an edit: its memory, the words, and how many of them are ``needed``.

    ``kind`` is a table of ``objections.toml``.
    """

    kind: str
    words: tuple[str, ...] = ()
    memory_id: int | None = None
    needed: int = 0

    @property
    def is_sure(self) -> bool:
        """Tell whether it is final; a doubtful one may be overruled by a second reading."""
        return bool(_KINDS[self.kind].get("is_sure"))

    def __str__(self) -> str:
        words = abbreviated([f'"{_shown(word)}"' for word in self.words], ", ")
        text: str = _KINDS[self.kind]["text"]
        return text.format(memory=f"#{self.memory_id}", words=words, needed=self.needed)


def refusal(objections: Iterable[Objection]) -> str:
    """Return the message for a model: all faults of its edit, and the remedy."""
    told = abbreviated([str(each) for each in objections], "; ")
    return f"Nothing was changed: {told}. Mend all of it, or leave the memory as it is"


def details_lost(objections: Iterable[Objection]) -> int:
    """Return how many details, names and list items an edit leaves out."""
    kinds = {"nothing", "detail", "name", "list", "code"}
    return len({word for each in objections if each.kind in kinds for word in each.words})


def _shown(word: str) -> str:
    return word if len(word) <= _SHOWN_CHARACTERS else f"{word[:_SHOWN_CHARACTERS]}…"
