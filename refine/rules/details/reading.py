"""What a text says, and whether another text says it too."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from refine.rules.details.folding import clean, fold
from refine.rules.details.names import FUNCTION_WORDS, begins_sentence, is_name
from refine.rules.details.number_words import AMBIGUOUS, VALUES
from refine.rules.details.tokens import tokens_of

_ENOUGH_WORDS = 2
_APOSTROPHES = re.compile("['’ʼ`]")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says, as far as it can be compared with another."""

    details: Mapping[str, str]
    words: frozenset[str]
    _mentioned: frozenset[str]


def read(text: str) -> Reading:
    """Return the details and words of a text."""
    text = clean(text)
    details: dict[str, str] = {}
    words: set[str] = set()
    mentioned: set[str] = set()
    end, before = 0, ""
    for token in tokens_of(text):
        if token.kind == "word":
            folded = fold(max(_APOSTROPHES.split(token.text), key=len))
            words.add(folded)
            head = begins_sentence(text[end : token.start], before)
            if folded in VALUES:
                mentioned.add(f"number:{VALUES[folded]}")
                if folded not in AMBIGUOUS:
                    details.setdefault(f"number:{VALUES[folded]}", token.text)
            elif is_name(token.text, folded, at_head=head):
                details.setdefault(f"name:{folded}", token.text)
        elif token.kind == "unspaced":
            folded = fold(token.text)
            words.update(map("".join, zip(folded, folded[1:], strict=False)))
        else:
            folded = fold(token.text)
            words.add(folded)
            mentioned.add(f"number:{folded}")
            details.setdefault(f"number:{folded}", token.text)
        end, before = token.end, folded
    return Reading(details, frozenset(words), frozenset(mentioned))


def mentions(reading: Reading, key: str) -> bool:
    """Tell whether the text contains this detail, in whatever writing."""
    return key in reading._mentioned or key.partition(":")[2] in reading.words


def carries(carrier: Reading, key: str, original: Reading) -> bool:
    """Tell whether a text mentions a detail of another, and speaks of the same thing.

    It does if it has two more words of the original, or one more detail; or all of the others,
    where the original has fewer. Function words count only where there are no others.
    """
    if not mentions(carrier, key):
        return False
    others = original.words - {key.partition(":")[2]}
    content = (others - FUNCTION_WORDS) or others
    shared = len(content & carrier.words)
    if shared >= min(_ENOUGH_WORDS, len(content)):
        return True
    return any(mentions(carrier, other) for other in original.details if other != key)


def likeness(original: Reading, other: Reading) -> Fraction:
    """Return the share, 0 to 1, of the original's words that stand in the other; 1 if none."""
    if not original.words:
        return Fraction(1)
    return Fraction(len(original.words & other.words), len(original.words))
