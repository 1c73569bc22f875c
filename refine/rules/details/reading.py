"""Whether a text still says what another one said."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice

from refine.rules.details.eastern_names import stands_in
from refine.rules.details.inflection import is_form_of, is_verb_form_of
from refine.rules.details.items import first_value
from refine.rules.details.lexicon.function_words import FUNCTION_WORDS
from refine.rules.details.tokens import has_unspaced, pairs

_ENOUGH_WORDS = 2
_SHORT_QUOTATION_WORDS = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says, as far as it can be compared with another.

    ``details``: the key of each detail, and the detail as it is written first. ``words``: the
    distinct words, folded; pairs of characters in scripts without spaces; numbers and dates in
    their canonical form; of a text without any, its symbols. ``mentioned``: keys that another
    text's detail may have, and symbols; few names, as ``words`` has them. ``row``: all words in
    order. ``language``: a guess, or "".
    """

    details: Mapping[str, str]
    words: frozenset[str]
    mentioned: frozenset[str]
    row: str
    language: str


def mentions(reading: Reading, key: str) -> bool:
    """Tell whether a text contains a detail, in whatever writing; ``key``: of another's details."""
    kind, _, value = key.partition(":")
    match kind:
        case "name":
            return (
                value in reading.words
                or key in reading.mentioned
                or is_form_of(value, reading.words, reading.language)
            )
        case "head":
            return mentions(reading, f"name:{value}") or (
                reading.language == "en" and is_verb_form_of(value, reading.words)
            )
        case "text":
            return key in reading.mentioned or stands_in(value, reading.row)
        case "quote":
            return key in reading.mentioned or _stands_in_row(value, reading.row)
    return any(each in reading.mentioned for each in key.split("|"))


def carries(carrier: Reading, key: str, original: Reading) -> bool:
    """Tell whether a text mentions a detail of another, and speaks of the same thing.

    It does if it has two more words of the original, or one more detail; or all of the others,
    where the original has fewer. Function words count only where the original has no others.
    """
    if not mentions(carrier, key):
        return False
    own = frozenset(_words_of(key))
    if _has_words_of(carrier, original, own):
        return True
    return any(
        mentions(carrier, other)
        for other in original.details
        if other != key and own.isdisjoint(_words_of(other))
    )


def _has_words_of(carrier: Reading, original: Reading, own: frozenset[str]) -> bool:
    """Tell whether a text has enough words of another, besides ``own``.

    Words are gone through only until there are enough: a text may have thousands, and as many
    details to ask this for.
    """

    def others(left_out: frozenset[str]) -> Iterator[str]:
        return (word for word in original.words if word not in own and word not in left_out)

    left_out = FUNCTION_WORDS if any(others(FUNCTION_WORDS)) else frozenset[str]()
    needed = len(list(islice(others(left_out), _ENOUGH_WORDS)))
    shared = (word for word in others(left_out) if word in carrier.words)
    return len(list(islice(shared, needed))) == needed


def likeness(original: Reading, other: Reading) -> Decimal:
    """Return the share, 0 to 1, of the original's words that stand in the other; 1 if none."""
    if not original.words:
        return Decimal(1)
    # a text of symbols alone may have come into one with words
    shared = original.words & other.words or original.words & other.mentioned
    return Decimal(len(shared)) / len(original.words)


def _stands_in_row(words: str, row: str) -> bool:
    if has_unspaced(words):
        return words.replace(" ", "") in row.replace(" ", "")
    return f" {words} " in f" {row} "


def _words_of(key: str) -> Iterable[str]:
    """Return the words that a detail consists of."""
    kind, _, value = key.partition(":")
    if kind == "quote":
        words = value.split()
        # A long quotation speaks for itself.
        return {*words, *pairs(value)} if len(words) <= _SHORT_QUOTATION_WORDS else ()
    return pairs(value) if kind == "text" else (first_value(key),)
