"""A text that is too long for one memory."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.splitting import packed, split


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


@given(st.lists(st.text(max_size=12), max_size=20), st.integers(12, 40))
def test_packed_lines_keep_their_order_and_fit(lines: list[str], room: int) -> None:
    parts = packed(lines, room)

    assert [line for part in parts for line in part] == lines
    assert all(sum(map(len, part)) <= room for part in parts)
    assert all(
        sum(map(len, part)) + len(after[0]) > room for part, after in itertools.pairwise(parts)
    )


def test_a_line_for_which_there_is_no_room_is_refused() -> None:
    assert packed(["abc", "de", "f"], 3) == [["abc"], ["de", "f"]]
    with pytest.raises(InvalidValue, match="one line of 4 characters; there is room for 3"):
        packed(["abc", "defg"], 3)
