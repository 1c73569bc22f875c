"""How an edit changed a text, word by word."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from os.path import commonprefix
from typing import Literal, NamedTuple

# A word with the white space behind it, so that the parts put together are the text.
_WORD = re.compile(r"\S+\s*|\s+")

# Agents choose the texts, and a reader waits for the page: this many steps take tenths of a second.
_MOST_STEPS = 5_000_000


class Part(NamedTuple):
    kind: Literal["same", "gone", "new"]
    text: str


def word_difference(before: str, after: str) -> list[Part]:
    """Return the words of both texts in one sequence: unchanged, removed and added ones."""
    return [part for part in _parts(_WORD.findall(before), _WORD.findall(after)) if part.text]


def _parts(old: Sequence[str], new: Sequence[str]) -> Iterator[Part]:
    # white space at the end of a word is no difference
    bare_old, bare_new = [word.strip() for word in old], [word.strip() for word in new]
    start = len(commonprefix([bare_old, bare_new]))
    end = len(commonprefix([bare_old[start:][::-1], bare_new[start:][::-1]]))
    old_middle, new_middle = old[start : len(old) - end], new[start : len(new) - end]
    yield Part("same", "".join(new[:start]))
    for tag, old_from, old_to, new_from, new_to in _compared(
        bare_old[start : len(old) - end], bare_new[start : len(new) - end]
    ):
        if tag != "equal":
            gone = "".join(old_middle[old_from:old_to])
            yield Part("gone", _lost_space(old, start + old_from, new, start + new_from) + gone)
        yield Part("same" if tag == "equal" else "new", "".join(new_middle[new_from:new_to]))
    yield Part("same", "".join(new[len(new) - end :]))


def _lost_space(old: Sequence[str], old_at: int, new: Sequence[str], new_at: int) -> str:
    """Return the white space before a removed word that the new text no longer shows."""
    shown = new[new_at - 1] if old_at and new_at else " "
    return "" if shown[-1].isspace() else old[old_at - 1][len(old[old_at - 1].rstrip()) :]


def _compared(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    matcher = SequenceMatcher(None, old, new)  # it ignores frequent words
    places: Mapping[str, list[int]] = matcher.b2j  # type: ignore[attr-defined] # documented
    pairs = sum(len(places.get(word, ())) for word in old)
    # at worst, every match is searched for among all pairs of equal words
    if pairs * min(len(old), len(new)) <= _MOST_STEPS:
        return matcher.get_opcodes()
    return [("replace", 0, len(old), 0, len(new))]
