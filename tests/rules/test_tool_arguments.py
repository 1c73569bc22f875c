"""The arguments of a tool call: one JSON object to the letter, or a refusal; never a repair."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refine.errors import InvalidValue
from refine.rules.tool_arguments import MAX_ARGUMENT_BYTES, parse_arguments

storable = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # each of these is six letters and no NUL
    | storable
    | st.sampled_from(["\\u0000", "\\\\u0000", "\\"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(storable, inner, max_size=4),
    max_leaves=10,
)
objects = st.dictionaries(storable, values, max_size=4)


@pytest.mark.parametrize("nothing", [None, "", " ", "\n\t ", "null", " null\n", "{}", " {} "])
def test_missing_blank_and_null_arguments_are_an_empty_object(nothing: str | None) -> None:
    assert parse_arguments(nothing) == {}


def test_an_object_is_read_as_it_stands() -> None:
    written = ' {"action": "delete", "id": 7, "deep": {"list": [1, 2.5, true, null, "ü🦉"]}}\n'

    parsed = parse_arguments(written)

    assert parsed == {
        "action": "delete",
        "id": 7,
        "deep": {"list": [1, 2.5, True, None, "ü🦉"]},
    }


@given(objects, st.booleans())
def test_every_object_that_can_be_stored_comes_back_unchanged(
    written: dict[str, Any], is_ascii: bool
) -> None:
    assert parse_arguments(json.dumps(written, ensure_ascii=is_ascii)) == written


@pytest.mark.parametrize(
    "written",
    [
        "[]",
        "[7]",
        "7",
        "true",
        "false",
        '""',
        '"{}"',
        '[{"action": "delete"}]',
        "delete",
        "{",
        '{"id": 7',
        '{"id": 7}}',
        '{"id": 7} {"id": 8}',
        '{"id": 7}{"id": 8}',
        '{"id": 7}, and that is all',
        'Sure! {"id": 7}',
        '```json\n{"id": 7}\n```',
        "```\n{}\n```",
        "{'id': 7}",
        "{id: 7}",
        '{"id": 7,}',
        '{"ids": [7, 9,]}',
        '{"id": 07}',
        '{"id": 0x7}',
        '{"id": +7}',
        '{"id": 7 // the oldest\n}',
        '{"id": "line\nbreak"}',
        '{"id": "raw \x00"}',
        '{"id": "\\x41"}',
        '{"id": True}',
        "\ufeff{}",
        '{"id": 7}\ufeff',
        "\x00",
        "{}\x00",
    ],
)
def test_what_is_not_exactly_one_object_is_refused(written: str) -> None:
    with pytest.raises(InvalidValue):
        parse_arguments(written)


@pytest.mark.parametrize("written", [{"id": 7}, {}, [], [7], 7, 0, True, False, b'{"id": 7}'])
def test_what_is_not_a_string_is_refused(written: Any) -> None:
    with pytest.raises(InvalidValue, match="written as a string"):
        parse_arguments(written)


@pytest.mark.parametrize(
    "written",
    [
        '{"id": 7, "id": 8}',
        '{"id": 7, "id": 7}',
        '{"id": 7, "\\u0069d": 8}',
        '{"deep": {"id": 7, "id": 8}}',
        '{"deep": [{"id": 7, "id": 8}]}',
    ],
)
def test_a_repeated_key_is_refused_however_it_is_spelled(written: str) -> None:
    with pytest.raises(InvalidValue, match="repeat a key"):
        parse_arguments(written)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_not_json_are_refused_by_name(constant: str) -> None:
    with pytest.raises(InvalidValue, match=f"contain {constant}, which is not JSON"):
        parse_arguments(f'{{"id": {constant}}}')


@pytest.mark.parametrize("number", ["9" * 5_000, "-" + "9" * 5_000, "1e999", "-1e999"])
def test_numbers_beyond_reason_are_refused(number: str) -> None:
    with pytest.raises(InvalidValue, match="must be valid JSON"):
        parse_arguments(f'{{"deep": [{number}]}}')


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_beyond_reason_is_refused(opening: str, closing: str) -> None:
    depth = 25_000

    with pytest.raises(InvalidValue, match="must be valid JSON"):
        parse_arguments(f'{{"deep": {opening * depth}1{closing * depth}}}')


@pytest.mark.parametrize(
    "written",
    [
        r'{"content": "\u0000"}',
        r'{"content": "before\u0000after"}',
        r'{"content": "\\\u0000"}',
        r'{"content": "\\\\\u0000"}',
        r'{"\u0000": 7}',
        r'{"deep": [{"list": ["\u0000"]}]}',
    ],
)
def test_an_escaped_nul_is_refused_wherever_it_stands(written: str) -> None:
    with pytest.raises(InvalidValue, match="NUL"):
        parse_arguments(written)


@pytest.mark.parametrize(
    ("written", "content"),
    [
        (r'{"content": "\\u0000"}', r"\u0000"),
        (r'{"content": "\\\\u0000"}', r"\\u0000"),
        (r'{"content": "\u00010"}', "\x010"),
    ],
)
def test_what_only_looks_like_a_nul_is_kept(written: str, content: str) -> None:
    assert parse_arguments(written) == {"content": content}


@pytest.mark.parametrize(
    "written",
    [
        r'{"content": "\ud800"}',
        r'{"content": "cut \ud83d"}',
        r'{"content": "\udc00\ud800"}',
        r'{"\udfff": 7}',
        r'{"deep": [["\ud800"]]}',
        '{"content": "raw \ud800"}',
        '{"content": "' + "\ud800" * 100_000 + '"}',
    ],
    ids=["high", "cut", "swapped", "key", "deep", "raw", "long"],
)
def test_half_a_surrogate_pair_is_refused(written: str) -> None:
    with pytest.raises(InvalidValue, match="valid Unicode"):
        parse_arguments(written)


def test_a_whole_surrogate_pair_is_the_character_it_stands_for() -> None:
    assert parse_arguments(r'{"content": "\ud83e\udd89"}') == {"content": "🦉"}


def test_arguments_may_be_exactly_as_long_as_the_limit() -> None:
    frame = '{"content": ""}'
    content = "x" * (MAX_ARGUMENT_BYTES - len(frame))

    parsed = parse_arguments(f'{{"content": "{content}"}}')

    assert parsed == {"content": content}


@pytest.mark.parametrize("filling", ["x", "é", "🦉"])
def test_one_byte_more_than_the_limit_is_refused(filling: str) -> None:
    frame = '{"content": ""}'
    room = MAX_ARGUMENT_BYTES - len(frame)
    content = filling * (room // len(filling.encode()))
    content += "y" * (room - len(content.encode()) + 1)

    with pytest.raises(InvalidValue, match="longer than 262,144 bytes"):
        parse_arguments(f'{{"content": "{content}"}}')


def test_the_limit_comes_before_the_parsing() -> None:
    with pytest.raises(InvalidValue, match="longer than"):
        parse_arguments("[" * (MAX_ARGUMENT_BYTES + 1))


@pytest.mark.parametrize(
    "written",
    ['{"canary": 1, "canary": 2}', '{"canary"', '["canary"]', r'{"canary": "\u0000"}', "'canary'"],
)
def test_the_refusal_does_not_repeat_what_was_given(written: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        parse_arguments(written)

    assert "canary" not in str(refusal.value)


fragments = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", '"a"', '"b"', ":", ",", "1", "-", ".5", "e9", "true", "null", "NaN"]
        + [" ", "\n", '"', "\\", "\\u0000", "\\ud800", "\x00", "\ud800", "\ufeff", "```", "'"]
    ),
    max_size=25,
).map("".join)


@given(st.one_of(st.text(), fragments, values.map(json.dumps), st.none(), st.integers(), values))
@example("\ud800")
def test_whatever_is_written_it_gives_a_storable_object_or_a_refusal(written: Any) -> None:
    try:
        parsed = parse_arguments(written)
    except InvalidValue:
        return

    assert type(parsed) is dict
    assert "\\u0000" not in json.dumps(parsed).replace("\\\\", "")
    assert json.dumps(parsed, ensure_ascii=False, allow_nan=False).encode()
