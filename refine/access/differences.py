"""How an edit changed a text, word by word."""

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from os.path import commonprefix
from typing import Literal, NamedTuple

Kind = Literal["same", "gone", "new"]

# A word with the white space behind it, so that the parts put together are the text.
_WORD = re.compile(r"\S+\s*|\s+")

# Agents choose the texts, and a reader waits for the page: this many steps take tenths of a second.
_MOST_STEPS = 5_000_000


class Part(NamedTuple):
    """Some words, and whether they stayed."""

    kind: Kind
    text: str


def word_difference(before: str | None, after: str | None) -> list[Part]:
    """Return the words of both texts in one sequence: unchanged, removed and added ones.

    A text that is None did not exist: all words of the other are added, or removed.
    """
    old, new = _WORD.findall(before or ""), _WORD.findall(after or "")
    # white space at the end of a word is no difference
    bare_old, bare_new = _bare(old), _bare(new)
    parts: list[Part] = []
    for is_same, old_from, old_to, new_from, new_to in _blocks(bare_old, bare_new):
        if is_same:
            parts.append(Part("same", "".join(new[new_from:new_to])))
            continue
        removed, added = "".join(old[old_from:old_to]), "".join(new[new_from:new_to])
        parts += [Part("gone", removed)] if removed else []
        parts += [Part("new", added)] if added else []
    return parts


def _bare(words: list[str]) -> list[str]:
    return [word.strip() for word in words]


def _blocks(old: list[str], new: list[str]) -> list[tuple[bool, int, int, int, int]]:
    """Return which words are the same and which differ, in order, by their places."""
    start = _shared(old, new)
    end = _shared(old[start:][::-1], new[start:][::-1])
    old_end, new_end = len(old) - end, len(new) - end
    blocks = [
        (tag == "equal", start + old_from, start + old_to, start + new_from, start + new_to)
        for tag, old_from, old_to, new_from, new_to in _compared(
            old[start:old_end], new[start:new_end]
        )
    ]
    before, after = (True, 0, start, 0, start), (True, old_end, len(old), new_end, len(new))
    return [before] * bool(start) + blocks + [after] * bool(end)


def _shared(old: list[str], new: list[str]) -> int:
    """Return with how many words both begin."""
    return len(commonprefix([old, new]))


def _compared(old: list[str], new: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """Return difflib's operations; if they take too long, all words count as different.

    Before that, they are tried without the frequent words.
    """
    for ignores_frequent in (False, True):
        matcher = SequenceMatcher(None, old, new, autojunk=ignores_frequent)
        places: Mapping[str, list[int]] = matcher.b2j  # type: ignore[attr-defined] # documented
        pairs = sum(len(places.get(word, ())) for word in old)
        # at worst, every match is searched for among all pairs of equal words
        if pairs * min(len(old), len(new)) <= _MOST_STEPS:
            return matcher.get_opcodes()
    return [("replace", 0, len(old), 0, len(new))]
