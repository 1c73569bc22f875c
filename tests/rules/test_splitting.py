"""Splitting a text that is too long for one memory."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.splitting import last_that_fit, packed, split


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


@given(st.lists(st.text(max_size=12), max_size=20), st.integers(12, 40))
def test_packed_lines_keep_their_order_and_fit(lines: list[str], room: int) -> None:
    parts = packed(lines, room)

    assert [line for part in parts for line in part] == lines
    assert all(sum(map(len, part)) <= room for part in parts)
    assert all(
        sum(map(len, part)) + len(after[0]) > room for part, after in itertools.pairwise(parts)
    )


@given(st.lists(st.text(max_size=12), max_size=20), st.integers(-5, 100))
def test_the_last_lines_that_fit_keep_their_order(lines: list[str], room: int) -> None:
    fitting = last_that_fit(lines, room)

    assert sum(map(len, fitting)) <= max(room, 0)
    left = iter(lines)
    assert all(line in left for line in fitting)


def test_a_line_that_is_too_long_is_left_out_and_earlier_ones_may_fit() -> None:
    assert last_that_fit(["ab", "c", "defgh", "ij"], 4) == ["c", "ij"]
    assert last_that_fit(["ab"], -1) == []


def test_refuses_a_line_that_is_longer_than_a_part() -> None:
    assert packed(["abc", "de", "f"], 3) == [["abc"], ["de", "f"]]
    with pytest.raises(InvalidValue, match="a line has 4 characters; at most 3 fit"):
        packed(["abc", "defg"], 3)
