"""A text that is too long for one memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.rules.splitting import split


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        (" \n ", []),
        ("  short  ", ["short"]),
        ("exactly 10", ["exactly 10"]),
        ("one two\n\nthree", ["one two", "three"]),
        ("a\n\nb c\nd e f", ["a", "b c\nd e f"]),
        ("one\ntwo three", ["one", "two three"]),
        ("One. Two? It", ["One. Two?", "It"]),
        ("one two three", ["one two", "three"]),
        ("abcdefghijklm", ["abcdefghij", "klm"]),
        ("one\n \t\n\n two three", ["one", "two three"]),
        ("abcdefghij\n\nk", ["abcdefghij", "k"]),
    ],
)
def test_is_cut_at_the_best_pause_there_is(text: str, parts: list[str]) -> None:
    assert split(text, 10) == parts


@given(st.text(alphabet="ab .\n\u2028ü", max_size=200), st.integers(1, 30))
def test_loses_nothing_but_blanks_at_the_cuts(text: str, limit: int) -> None:
    parts = split(text, limit)

    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part) <= limit and part == part.strip() for part in parts)


def test_a_long_text_is_split_by_the_limit_of_a_memory() -> None:
    assert [len(part) for part in split("x" * 25_000)] == [10_000, 10_000, 5_000]
