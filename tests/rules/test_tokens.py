"""The token estimate, and how the context of a model is divided."""

import itertools
import math

import pytest
from hypothesis import example, given, strategies as st

from refine.errors import InvalidValue
from refine.rules.content import token_estimate
from refine.rules.tokens import Room, last_that_fit, packed, request_tokens_at_most, tokens_at_most


def test_text_that_must_fit_is_counted_by_script():
    assert [tokens_at_most("x" * length) for length in (0, 1, 3, 4)] == [0, 1, 1, 2]
    assert (tokens_at_most("記憶"), tokens_at_most("🦉 tea")) == (2, 3)


def test_a_small_context_keeps_a_quarter_for_the_output():
    for context_tokens, own_limit, output_tokens in (
        *((128_000, None, 8_192), (32_768, None, 8_192), (8_192, None, 2_048)),
        *((4_096, None, 1_024), (128_000, 4_096, 4_096), (8_192, 65_536, 2_048), (1, None, 1)),
    ):
        assert Room.of(context_tokens, own_limit).output_tokens == output_tokens


def test_twice_the_room_stays_within_half_of_the_context_and_the_models_own_limit():
    assert [Room.of(128_000).output(times) for times in (1, 2)] == [8_192, 16_384]
    assert [Room.of(4_096).output(times) for times in (1, 2, 3)] == [1_024, 2_048, 2_048]
    assert [Room.of(128_000, 4_096).output(times) for times in (1, 2)] == [4_096, 4_096]
    assert [Room.of(128_000, 10_000).output(times) for times in (1, 2)] == [8_192, 10_000]


def test_a_request_counts_every_text_of_its_messages_and_its_tools():
    call = {"id": "c" * 9, "function": {"name": "n" * 30, "arguments": "a" * 300}}
    plain = {"role": "user", "content": "u" * 600}
    parted = {"role": "user", "content": [{"type": "text", "text": "u" * 600}]}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}

    assert request_tokens_at_most([], []) == 0
    assert request_tokens_at_most([plain], []) == 8 + 2 + 200
    assert request_tokens_at_most([parted], []) == 8 + 2 + 2 + 200
    assert request_tokens_at_most([called], []) == 8 + 3 + 3 + 10 + 100
    assert request_tokens_at_most([plain, called], [{"a": "b"}]) == 210 + 124 + 4


def test_reasoning_in_two_forms_counts_once():
    thought = "t" * 300
    both = {"reasoning": thought, "reasoning_details": [{"text": thought}]}

    assert request_tokens_at_most([both], []) == request_tokens_at_most(
        [{"reasoning": thought}], []
    )


def test_a_flood_of_repeated_words_names_or_numbers_counts():
    for flood in (["tea"] * 10_000, list(range(10_000)), {f"name {n}": None for n in range(5_000)}):
        assert request_tokens_at_most([{"reasoning_details": flood}], []) > 2_000


def test_an_output_and_a_request_fit_the_context_together():
    room = Room.of(8_192)

    assert [room.output_beside(tokens) for tokens in (0, 6_144, 6_145)] == [2_048, 2_048, None]
    assert [room.output_beside(tokens, 2) for tokens in (0, 6_000)] == [4_096, 2_192]


def test_a_result_gets_half_of_the_remaining_room():
    assert [Room.of(8_192).for_result(tokens) for tokens in (0, 6_000, 7_000)] == [3_072, 72, 0]


def test_content_gets_half_of_the_room_beside_output_and_texts():
    assert Room.of(8_192).for_content([]) == (8_192 - 2_048) // 2
    assert Room.of(8_192).for_content(["x" * 300, "記" * 100]) == (8_192 - 2_048 - 200) // 2
    assert Room.of(8_192).for_content(["x" * 30_000]) == 0


TEXTS = st.lists(st.text(st.sampled_from("ab記 "), max_size=12), max_size=20)


def total(lines: list[str]) -> int:
    return sum(map(tokens_at_most, lines))


@given(TEXTS, st.integers(12, 40))
def test_packed_lines_keep_their_order_and_fit(lines, room_tokens):
    parts = packed(lines, room_tokens)

    assert [line for part in parts for line in part] == lines
    assert all(total(part) <= room_tokens for part in parts)
    assert all(
        total(part) + tokens_at_most(after[0]) > room_tokens
        for part, after in itertools.pairwise(parts)
    )


def test_a_line_that_does_not_fit_is_refused_without_quoting_it():
    with pytest.raises(InvalidValue, match="a line takes 4 tokens; at most 3 fit"):
        packed(["ok", "x" * 12], 3)


def test_a_line_that_does_not_fit_leaves_its_room_to_those_before_it():
    lines = ["first", "x" * 6, "x" * 30, "last"]

    assert last_that_fit(lines, 4) == ["x" * 6, "last"]
    assert last_that_fit(lines, 6) == ["first", "x" * 6, "last"]
    assert packed(lines, 10) == [["first", "x" * 6], ["x" * 30], ["last"]]
    assert packed(["", *lines[:2]], 4) == [["", *lines[:2]]]


@given(TEXTS, st.integers(-5, 100))
def test_the_last_lines_that_fit_keep_their_order(lines, room_tokens):
    fitting = last_that_fit(lines, room_tokens)

    left = iter(lines)
    assert all(line in left for line in fitting)
    assert total(fitting) <= max(0, room_tokens)


# -- the estimate ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("tea", 1),
        ("green tea", 3),
        ("她喜欢绿茶", 5),
        ("お茶が好きだ", 6),
        ("ชาเขียว", 7),
        ("ຊາຂຽວ", 5),
        ("តែបៃតង", 6),
        ("လက်ဖက်", 6),
        ("그녀는 녹차를 좋아한다", 3),  # Korean has spaces
        ("зелёный чай", 3),
        ("她 likes 绿茶", 3 + 2),
        ("她喜欢绿茶。", 5 + 1),
        ("🦉" * 5, 2),
    ],
)
def test_a_token_is_four_characters_or_one_of_a_script_without_spaces(text, tokens):
    assert token_estimate(text) == tokens


ANY, UNSPACED = st.text(), st.text(st.sampled_from("茶雁ねコชลក"))


@given(ANY, UNSPACED, ANY)
@example("🦉" * 5, "", "")
def test_characters_of_scripts_without_spaces_count_as_four(one, run, two):
    alone = token_estimate(one + two)

    assert alone >= math.ceil(len(one + two) / 4)
    assert token_estimate(one + run + two) == alone + len(run)
    assert token_estimate(one + "x" * 4 * len(run) + two) == alone + len(run)
