"""A difference says which words stayed, which are gone, which are new."""

import pytest
from hypothesis import given, strategies as st

from refine.access.differences import Part, word_difference


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("a b c", "a b c", [("same", "a b c")]),
        ("a b c", "a x c", [("same", "a "), ("gone", "b "), ("new", "x "), ("same", "c")]),
        ("a b", "a", [("same", "a"), ("gone", " b")]),
        ("a\n\na c", "a", [("same", "a"), ("gone", "\n\na c")]),
        ("a", "a b", [("same", "a "), ("new", "b")]),
        ("", "a b", [("new", "a b")]),
        ("a b", "", [("gone", "a b")]),
        ("", "", []),
        ("a\n\nb", "a b", [("same", "a b")]),
        ("ab", "a b", [("gone", "ab"), ("new", "a b")]),
    ],
)
def test_words_that_stayed_are_gone_or_are_new(before, after, parts):
    assert word_difference(before, after) == [Part(*part) for part in parts]  # type: ignore[arg-type]


@given(st.text(alphabet="ab \n", max_size=60), st.text(alphabet="ab \n", max_size=60))
def test_the_kept_and_new_parts_make_the_new_text(before, after):
    parts = word_difference(before, after)

    assert "".join(part.text for part in parts if part.kind != "gone") == after


def test_texts_too_long_to_compare_are_shown_as_replaced():
    words = [f"word{number % 100}" for number in range(2_000)]
    before, after = " ".join(words), " ".join(reversed(words))

    assert word_difference(before, after) == [Part("gone", before), Part("new", after)]


def test_an_edit_in_the_middle_of_a_long_text_is_shown_as_small():
    words = ["aab"[number % 3] for number in range(2_000)]
    before, after = " ".join(words), " ".join([*words[:999], "x", *words[1_000:]])

    parts = word_difference(before, after)

    assert [part.kind for part in parts] == ["same", "gone", "new", "same"]
    assert parts[1:3] == [Part("gone", "a "), Part("new", "x ")]
