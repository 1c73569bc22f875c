"""Which details a rewritten text loses: a table in many languages, written for this project."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from refine.rules.details import carries, read


class Pair(NamedTuple):
    """A text, what it was rewritten to, and the details that the second one lost."""

    language: str
    text: str
    rewritten: str
    lost: list[str]


def _pairs() -> list[Pair]:
    table = json.loads(Path(__file__).with_name("detail_pairs.json").read_text(encoding="utf-8"))
    return [Pair(*row) for rows in table.values() for row in rows]


PAIRS = _pairs()


def lost_details(text: str, rewritten: str) -> list[str]:
    original, carrier = read(text), read(rewritten)
    return [
        written for key, written in original.details.items() if not carries(carrier, key, original)
    ]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.language}: {pair.text}")
def test_exactly_the_lost_details_are_named(pair: Pair) -> None:
    assert sorted(lost_details(pair.text, pair.rewritten)) == sorted(pair.lost)
