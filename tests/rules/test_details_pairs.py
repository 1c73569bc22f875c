"""Which details a rewritten text loses: a table in many languages, written for this project."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from refine.rules.details import carries, read


class Pair(NamedTuple):
    """A text, what it was rewritten to, and the details that this lost, as they were written."""

    language: str
    text: str
    rewritten: str
    lost: list[str]


TABLE = json.loads(Path(__file__).with_name("detail_pairs.json").read_text(encoding="utf-8"))
PAIRS = [Pair(*row) for rows in TABLE.values() for row in rows]

# What the rules do not see, and why.
KNOWN_LIMITS = {
    "values that change places are all still mentioned": Pair(
        "en", "Anna is 17 and Tom is 18.", "Anna is 18 and Tom is 17.", ["17", "18"]
    ),
    "a negation is no detail": Pair(
        "en", "Anna eats nuts in spring.", "Anna never eats nuts in spring.", ["Anna"]
    ),
    "a name that is also a word is found in the word": Pair(
        "en", "We asked Will about bread.", "We will have asked about bread.", ["Will"]
    ),
    "the Russian genitive of a man's name is a woman's name": Pair(
        "ru", "Валентин живёт у моря.", "Валентина живёт у моря.", ["Валентин"]
    ),
    "a name that nothing marks, in a script without capitals": Pair(
        "ar", "يسكن مروان قرب البحر.", "يسكن صديق قرب البحر.", ["مروان"]
    ),
    "the letter behind a number": Pair(
        "en", "She lives at Baker Street 5a.", "She lives at Baker Street 5.", ["5a"]
    ),
    "a number that stands twice": Pair(
        "en", "The code of the gate is 3 1 4 1.", "The code of the gate is 3 1 4.", ["1"]
    ),
    "words that count without being numbers": Pair(
        "en", "She wants a dozen eggs twice a week.", "She wants eggs every week.", ["dozen"]
    ),
    "a sign behind a letter": Pair(
        "en", "Her blood type is O+ she said.", "Her blood type is O she said.", ["O+"]
    ),
}


def lost_details(text: str, rewritten: str) -> list[str]:
    original, carrier = read(text), read(rewritten)
    return [
        written for key, written in original.details.items() if not carries(carrier, key, original)
    ]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.language}: {pair.text}")
def test_exactly_the_lost_details_are_named(pair: Pair) -> None:
    assert sorted(lost_details(pair.text, pair.rewritten)) == sorted(pair.lost)


@pytest.mark.parametrize("pair", KNOWN_LIMITS.values(), ids=KNOWN_LIMITS)
def test_known_limits_are_those_that_are_listed(pair: Pair) -> None:
    assert lost_details(pair.text, pair.rewritten) == []


def test_the_table_is_large_and_in_many_languages() -> None:
    assert len(PAIRS) >= 200
    assert len({pair.language for pair in PAIRS}) >= 15
