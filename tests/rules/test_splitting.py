"""Splitting a text that is too long for one memory."""

from hypothesis import given
from hypothesis import strategies as st

from refine.rules.splitting import split


def test_cuts_at_the_best_pause() -> None:
    for text, parts in (
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
    ):
        assert split(text, 10) == parts, text


@given(st.text(alphabet="ab .\n\u2028ü", max_size=200), st.integers(1, 30))
def test_loses_only_blanks_at_the_cuts(text: str, limit: int) -> None:
    parts = split(text, limit)

    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part) <= limit and part == part.strip() for part in parts)


def test_default_limit_is_that_of_a_memory() -> None:
    assert [len(part) for part in split("x" * 25_000)] == [10_000, 10_000, 5_000]
