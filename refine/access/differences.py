"""How an edit changed a text, word by word."""

import re
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

Kind = Literal["same", "gone", "new"]

# A word with the white space behind it, so that the parts put together are the text.
_WORD = re.compile(r"\S+\s*|\s+")

# Comparing every word with every other is slow.
_LONG_WORDS = 4_000


class Part(NamedTuple):
    """Some words, and whether they stayed."""

    kind: Kind
    text: str


def word_difference(before: str | None, after: str | None) -> list[Part]:
    """Return the words of both texts in one sequence: unchanged, removed and added ones.

    A text that is None did not exist: all words of the other are added, or removed.
    """
    old, new = _WORD.findall(before or ""), _WORD.findall(after or "")
    # white space at the end of a word is no difference; in long texts, neither is every "the"
    is_long = len(old) + len(new) > _LONG_WORDS
    matcher = SequenceMatcher(None, _bare(old), _bare(new), autojunk=is_long)
    parts: list[Part] = []
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag == "equal":
            parts.append(Part("same", "".join(new[new_from:new_to])))
            continue
        removed, added = "".join(old[old_from:old_to]), "".join(new[new_from:new_to])
        parts += [Part("gone", removed)] if removed else []
        parts += [Part("new", added)] if added else []
    return parts


def _bare(words: list[str]) -> list[str]:
    return [word.strip() for word in words]
