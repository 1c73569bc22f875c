"""What may be stored as text."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.content import (
    TAGS,
    bounded_text,
    identity,
    known_tags,
    memory_content,
    one_line,
    prompt_text,
    storable,
)

VALIDATORS: list[Callable[[object], object]] = [
    lambda text: storable(text, field="field"),
    lambda text: bounded_text(text, field="field", limit=100),
    memory_content,
    lambda text: prompt_text("field", text),
    lambda text: one_line(text, field="field"),
]


@pytest.mark.parametrize("validate", VALIDATORS)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (7, "must be text"),
        (b"text", "must be text"),
        (["text"], "must be text"),
        (True, "must be text"),
        ("a\x00b", "NUL"),
        ("\x00", "NUL"),
        ("cut \ud83d", "valid Unicode"),
        ("\udc00 cut", "valid Unicode"),
        ("\udd89\ud83e", "valid Unicode"),
    ],
)
def test_no_entrance_takes_what_the_database_cannot_hold(
    validate: Callable[[object], object], text: Any, why: str
) -> None:
    with pytest.raises(InvalidValue, match=why):
        validate(text)


@pytest.mark.parametrize("text", ["", " ", "ü🦉", "a\nb", "\x01", "\ufeff", "‮rtl", "\u200b"])
def test_all_other_text_is_stored_as_it_stands(text: str) -> None:
    assert storable(text, field="field") == text


@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_nothing_else_is_refused_and_nothing_is_altered(text: str) -> None:
    assert storable(text, field="field") == text


@pytest.mark.parametrize("text", [" a b ", "\n\ta b\r\n", "\u00a0a b\u3000"])
def test_a_memory_is_trimmed_at_its_ends_alone(text: str) -> None:
    assert memory_content(text) == "a b"


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u00a0\u3000"])
def test_a_memory_is_not_blank(text: str) -> None:
    with pytest.raises(InvalidValue, match="content must not be empty"):
        memory_content(text)


@pytest.mark.parametrize("character", ["x", "é", "🦉"])
def test_a_memory_has_up_to_ten_thousand_characters_whatever_their_bytes(character: str) -> None:
    text = character * 10_000

    assert memory_content(f" {text} ") == text


@pytest.mark.parametrize("character", ["x", "🦉"])
def test_one_character_more_is_refused_with_the_figures(character: str) -> None:
    with pytest.raises(InvalidValue, match="content has 10,001 characters; at most 10,000"):
        memory_content(character * 10_001)


@pytest.mark.parametrize("nothing", [None, "", " \n"])
def test_a_blank_prompt_means_the_default(nothing: str | None) -> None:
    assert prompt_text("system_prompt", nothing) is None


def test_a_prompt_is_trimmed() -> None:
    assert prompt_text("system_prompt", " You are Wren.\n") == "You are Wren."


def test_a_prompt_beyond_its_limit_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidValue, match="system_prompt has 10,001 characters"):
        prompt_text("system_prompt", "x" * 10_001)


@pytest.mark.parametrize("name", ["Wren", "Wren & Søn 🦉", "a" * 200])
def test_a_name_is_one_line(name: str) -> None:
    assert one_line(f" {name} ", field="name") == name


@pytest.mark.parametrize(
    "character", ["\n", "\r", "\t", "\x0b", "\x1b", "\x7f", "\x85", "\x9f", "\u2028", "\u2029"]
)
def test_a_name_holds_no_line_break_and_no_control_character(character: str) -> None:
    with pytest.raises(InvalidValue, match="name must be one line"):
        one_line(f"Wren{character}admin", field="name")


@pytest.mark.parametrize("mark", "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_a_name_turns_no_direction_around_and_a_memory_may(mark: str) -> None:
    assert memory_content(f"Wren{mark}admin") == f"Wren{mark}admin"
    with pytest.raises(InvalidValue, match="name must be one line"):
        one_line(f"Wren{mark}admin", field="name")


@pytest.mark.parametrize("mark", "\u061c\u200e\u200f")
def test_a_name_may_hold_the_marks_that_some_languages_need(mark: str) -> None:
    assert one_line(f"שלום{mark}!", field="name") == f"שלום{mark}!"


def test_a_name_beyond_its_limit_is_refused() -> None:
    with pytest.raises(InvalidValue, match="name has 201 characters; at most 200"):
        one_line("x" * 201, field="name")


def test_the_limit_of_a_name_may_be_another() -> None:
    with pytest.raises(InvalidValue, match="at most 3"):
        one_line("Wren", field="name", limit=3)


@pytest.mark.parametrize(
    ("given_tags", "known"),
    [
        ([], []),
        (["voice"], ["voice"]),
        (["voice", "audio", "voice"], ["audio", "voice"]),
        (("relational", "somatic"), ["somatic", "relational"]),
        ({"audio"}, ["audio"]),
        (list(reversed(TAGS)), list(TAGS)),
    ],
)
def test_tags_come_once_and_in_one_order(given_tags: Any, known: list[str]) -> None:
    assert known_tags(given_tags) == known


@pytest.mark.parametrize(
    "given_tags", [None, "audio", b"", b"audio", 7, True, {}, {"audio": False}, object()]
)
def test_what_is_no_list_of_tags_is_refused(given_tags: Any) -> None:
    with pytest.raises(InvalidValue, match="must be a list of: audio, somatic, voice, relational"):
        known_tags(given_tags)


@pytest.mark.parametrize(
    "tag", ["canary", "Audio", " audio", "", None, 7, True, ["audio"], {"audio": 1}]
)
def test_an_unknown_tag_is_refused_with_the_known_ones(tag: Any) -> None:
    with pytest.raises(InvalidValue, match="allowed tags: audio, somatic") as refusal:
        known_tags(["audio", tag])

    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize("twin", ["Tea at four.", " tea at FOUR.\n", "TEA AT FOUR."])
def test_duplicates_differ_in_case_and_at_their_ends_alone(twin: str) -> None:
    assert identity(twin) == "tea at four."


@pytest.mark.parametrize("other", ["Tea at four", "Tea  at four.", "Tea at four!", "Tea at\nfour."])
def test_any_other_difference_makes_another_memory(other: str) -> None:
    assert identity(other) != identity("Tea at four.")
