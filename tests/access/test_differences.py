"""A difference says which words stayed, which are gone, which are new."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.access.differences import Part, word_difference


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("a b c", "a b c", [("same", "a b c")]),
        ("a b c", "a x c", [("same", "a "), ("gone", "b "), ("new", "x "), ("same", "c")]),
        ("a b", "a", [("same", "a"), ("gone", "b")]),
        ("a", "a b", [("same", "a "), ("new", "b")]),
        (None, "a b", [("new", "a b")]),
        ("a b", None, [("gone", "a b")]),
        (None, None, []),
        ("a\n\nb", "a b", [("same", "a b")]),
        ("ab", "a b", [("gone", "ab"), ("new", "a b")]),
    ],
)
def test_words_that_stayed_are_gone_or_are_new(
    before: str | None, after: str | None, parts: list[tuple[str, str]]
) -> None:
    assert word_difference(before, after) == [Part(*part) for part in parts]  # type: ignore[arg-type]


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60))
def test_all_that_is_not_gone_is_the_text_after(before: str, after: str) -> None:
    parts = word_difference(before, after)

    assert "".join(part.text for part in parts if part.kind != "gone") == after


def test_a_long_text_takes_no_long_time() -> None:
    many = " ".join(f"the word {number % 500}" for number in range(4_000))

    parts = word_difference(many, many + " more")

    assert parts[-1] == Part("new", "more")
