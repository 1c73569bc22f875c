"""Which text can be stored."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from refine.errors import InvalidValue
from refine.rules.content import (
    TAGS,
    bounded_text,
    comparable,
    known_tags,
    memory_content,
    one_line,
    prompt_text,
    reply_text,
    sanitized,
    storable,
    visible_name,
)
from tests.rules.refusing import not_refused


def name(text: object) -> str:
    return one_line(text, field="name")


@pytest.mark.parametrize(
    "rule",
    [
        lambda text: storable(text, field="field"),
        lambda text: bounded_text(text, field="field", limit=100),
        memory_content,
        lambda text: prompt_text("field", text),
        lambda text: reply_text("field", text),
        name,
    ],
)
def test_every_rule_refuses_what_the_database_cannot_hold(rule):
    assert not_refused(rule, [7, b"text", ["text"], True], "must be text") == []
    assert not_refused(rule, ["a\x00b", "\x00"], "NUL") == []
    assert not_refused(rule, ["cut \ud83d", "\udc00 cut", "\udd89\ud83e"], "valid Unicode") == []


@given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])))
def test_other_text_is_stored_unchanged(text):
    assert storable(text, field="field") == sanitized(text) == text


def test_sanitized_text_has_replacement_characters():
    assert sanitized("a\x00b \ud83d \udc00") == "a\ufffdb \ufffd \ufffd"


def test_a_memory_is_trimmed_and_not_blank():
    for text in (" a b ", "\n\ta b\r\n", "\u00a0a b\u3000"):
        assert memory_content(text) == "a b", repr(text)
    blank = ["", " ", "\n\t", "\u00a0\u3000"]
    assert not_refused(memory_content, blank, "content must not be empty") == []


def test_the_limit_of_a_memory_counts_characters_not_bytes():
    for character in "xé🦉":
        assert memory_content(f" {character * 10_000} ") == character * 10_000, character
    refusal = "content has 10,001 characters; at most 10,000"
    assert not_refused(memory_content, ["x" * 10_001, "🦉" * 10_001], refusal) == []


def test_a_prompt_is_trimmed_and_bounded_and_blank_means_the_default():
    assert [prompt_text("system_prompt", blank) for blank in (None, "", " \n")] == [None] * 3
    assert prompt_text("system_prompt", " You are Wren.\n") == "You are Wren."
    with pytest.raises(InvalidValue, match="system_prompt has 10,001 characters"):
        prompt_text("system_prompt", "x" * 10_001)


def test_stores_ten_thousand_characters_of_an_answer_and_marks_the_cut():
    assert reply_text("reply", None) is None
    assert reply_text("reply", " YES\n") == " YES\n"
    assert reply_text("reply", "🦉" * 10_000) == "🦉" * 10_000

    cut = reply_text("reply", "🦉" * 10_001)

    assert cut == "🦉" * 9_987 + " … [cut here]"
    assert len(cut) == 10_000


def test_a_name_is_one_line_without_control_characters():
    marks = (f"שלום{mark}!" for mark in "\u061c\u200e\u200f")
    for allowed in ("Wren", "Wren & Søn 🦉", "a" * 200, *marks):
        assert name(f" {allowed} ") == allowed, repr(allowed)
    control = "\n\r\t\x0b\x1b\x7f\x85\x9f\u2028\u2029"
    overrides = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # of the text direction
    names = [f"Wren{mark}admin" for mark in control + overrides]
    assert not_refused(name, names, "name must be one line") == []
    assert memory_content(f"Wren{overrides}admin") == f"Wren{overrides}admin"
    assert not_refused(name, ["x" * 201], "name has 201 characters; at most 200") == []


def test_a_visible_name_has_no_invisible_characters():
    def visible(text: object) -> str:
        return visible_name(text, field="name")

    for allowed in ("Wren & Søn 🦉", "שלום", "Zoë", "नमस्ते", "I ❤\ufe0f tea"):
        assert visible(f" {allowed} ") == allowed
    invisible = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cf"]
    blank = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U000e0100\U000e01ef"
    assert len(invisible) > 100
    names = [f"Wren{mark}admin" for mark in [*invisible, *blank]]
    refused = not_refused(visible, names, "name must")
    assert refused == []
    assert not_refused(visible, ["Wren\u200badmin"], "name must not contain invisible") == []
    assert not_refused(visible, ["Wren\nadmin"], "name must be one line") == []


def test_tags_come_once_and_in_a_fixed_order():
    for tags, known in (
        ([], []),
        (["voice"], ["voice"]),
        (["voice", "audio", "voice"], ["audio", "voice"]),
        (("relational", "somatic"), ["somatic", "relational"]),
        ({"audio"}, ["audio"]),
        (list(reversed(TAGS)), list(TAGS)),
    ):
        assert known_tags(tags) == known, tags


def test_other_tags_are_refused_without_being_quoted():
    no_lists = [None, "audio", b"", b"audio", 7, True, {}, {"audio": False}, object()]
    listed = "must be a list of: audio, somatic, voice, relational"
    assert not_refused(known_tags, no_lists, listed) == []
    unknown = ["canary", "Audio", " audio", "", None, 7, True, ["audio"], {"audio": 1}]
    tags = [["audio", tag] for tag in unknown]
    assert not_refused(known_tags, tags, "allowed tags: audio, somatic") == []


def test_exact_duplicates_may_differ_in_blanks_composition_and_the_case_of_plain_words():
    for twin in ("Caf\u00e9 at four.", " cafe\u0301  At\u00a0Four.\n"):
        assert comparable(twin) == "caf\u00e9 at four.", twin
    for other in ("Caf\u00e9 at four", "Caf\u00e9 at four!", "Cafe at four.", "Caf\u00e9 atfour."):
        assert comparable(other) != "caf\u00e9 at four.", other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The key is hunter2Key", "the key is hunter2key"),
        ("ABC-DEF", "abc-DEF"),
        ("(A1b)", "(a1b)"),
        ("xY", "Xy"),
        ("https://t.test/aB", "https://t.test/ab"),
        ("TEA", "tea"),
        ("\u2167", "\u2177"),  # the digit eight, as a Roman capital and in lower case
        ("\u0416\u0427", "\u0436\u0447"),
    ],
)
def test_no_words_are_duplicates_if_the_case_of_one_may_matter(one, other):
    assert comparable(one) != comparable(other)
    assert comparable(one) == comparable(f" {one}\n")
