"""Strict JSON, and the arguments of tool calls: exactly one value, never repaired or quoted."""

import json

import pytest
from hypothesis import example, given, strategies as st

from refine.errors import InvalidValue
from refine.rules.received_json import (
    MAX_ARGUMENT_BYTES,
    check_json,
    parse_arguments,
    strict_json,
    strict_json_values,
    unchecked_json,
)
from tests.rules.refusing import not_refused

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # each of these is six letters and not a NUL
    | texts
    | st.sampled_from(["\\u0000", "\\\\u0000", "\\"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


def with_content(content: str) -> str:
    return f'{{"content": "{content}"}}'


def test_missing_blank_and_null_arguments_are_an_empty_object():
    blank = [None, "", " ", "\n\t ", "null", " null\n", "{}", " {} "]

    assert [written for written in blank if parse_arguments(written) != {}] == []


def test_an_object_is_returned_as_written():
    written = ' {"id": 7, "deep": {"list": [1, 2.5, true, null, "ü🦉"]}}\n'

    assert parse_arguments(written) == {"id": 7, "deep": {"list": [1, 2.5, True, None, "ü🦉"]}}


def test_arguments_are_exactly_one_object():
    other_values = ["[]", "[7]", "7", "true", "false", '""', '"{}"', '[{"action": "delete"}]']
    no_json = [
        *("delete", "{", '{"id": 7', '{"id": 7}}', '{"id": 7} {"id": 8}', '{"id": 7}{"id": 8}'),
        *('Sure! {"id": 7}', '```json\n{"id": 7}\n```'),
        *("{'id': 7}", "{id: 7}", '{"id": 7,}', '{"ids": [7, 9,]}', '{"id": 07}', '{"id": 0x7}'),
        *('{"id": +7}', '{"id": 7 // the oldest\n}', '{"id": "line\nbreak"}', '{"id": "raw \x00"}'),
        *('{"id": "\\x41"}', '{"id": True}', "\ufeff{}", '{"id": 7}\ufeff', "\x00", "{}\x00"),
        *("\u00a0{}", '{"canary"', "'canary'"),
    ]
    no_texts = [{"id": 7}, {}, [], [7], 7, 0, True, False, b'{"id": 7}']

    assert not_refused(parse_arguments, other_values, "must be one JSON object") == []
    assert not_refused(parse_arguments, no_json, "arguments must be valid JSON") == []
    assert not_refused(parse_arguments, no_texts, "written as a string") == []


def test_refuses_a_repeated_key_however_it_is_spelled():
    repeated = [
        *('{"id": 7, "id": 8}', '{"id": 7, "id": 7}', '{"id": 7, "\\u0069d": 8}'),
        *('{"deep": {"id": 7, "id": 8}}', '{"deep": [{"id": 7, "id": 8}]}'),
        '{"canary": 1, "canary": 2}',
    ]

    assert not_refused(parse_arguments, repeated, "must not repeat a key") == []


def test_refuses_numbers_that_are_not_json_or_too_large():
    for constant in ("NaN", "Infinity", "-Infinity"):
        message = f"must not contain {constant}, which is not JSON"
        assert not_refused(parse_arguments, [f'{{"id": {constant}}}'], message) == []
    longest = "9" * 100
    assert parse_arguments(f'{{"id": [{longest}, -{longest}]}}')
    long = [
        f'{{"deep": [{number}]}}' for number in ("1" + "0" * 100, "-1" + "0" * 100, "9" * 5_000)
    ]
    assert not_refused(parse_arguments, long, "a number of more than 100 digits") == []
    large = [f'{{"deep": [{number}]}}' for number in ("1e999", "-1e999")]
    assert not_refused(parse_arguments, large, "a number that is too large") == []


def test_refuses_deep_nesting_and_too_many_fields():
    deep = [
        '{"deep": ' + opening * depth + "1" + closing * depth + "}"
        for depth in (19, 25_000)
        for opening, closing in ("[]", ('{"a":', "}"))
    ]

    assert strict_json("[" * 19 + "1" + "]" * 19, max_bytes=100)
    assert not_refused(parse_arguments, deep, "nested more than 20 levels deep") == []
    fields = json.dumps([{"a": 1}] * 6)
    assert strict_json(fields, max_bytes=100, max_fields=6)
    with pytest.raises(InvalidValue, match="must not have more than 5 fields"):
        strict_json(fields, max_bytes=100, max_fields=5)


def test_refuses_nul_and_lone_surrogates_anywhere():
    nul = [
        *map(with_content, (r"\u0000", r"before\u0000after", r"\\\u0000", r"canary \\\\\u0000")),
        *(r'{"\u0000": 7}', r'{"deep": [{"list": ["\u0000"]}]}'),
    ]
    surrogates = [
        *map(with_content, (r"\ud800", r"cut \ud83d", r"\udc00\ud800", "raw \ud800")),
        *(r'{"\udfff": 7}', r'{"deep": [["\ud800"]]}', with_content("\ud800" * 10_000)),
    ]

    assert not_refused(parse_arguments, nul, "NUL") == []
    assert not_refused(parse_arguments, surrogates, "valid Unicode") == []


def test_the_limit_is_inclusive_counts_bytes_and_comes_before_parsing():
    room = MAX_ARGUMENT_BYTES - len(with_content(""))
    longer = [with_content(letter * (room // len(letter.encode()) + 1)) for letter in "xé🦉"]

    assert parse_arguments(with_content("x" * room)) == {"content": "x" * room}
    refusal = "longer than 262,144 bytes"
    assert not_refused(parse_arguments, [*longer, "[" * (MAX_ARGUMENT_BYTES + 1)], refusal) == []
    assert not_refused(lambda text: strict_json(text, max_bytes=3), [b"1234"], "than 3 bytes") == []


def test_bytes_are_utf_8():
    assert strict_json('"ü"'.encode(), max_bytes=10) == "ü"
    with pytest.raises(InvalidValue, match="valid UTF-8"):
        strict_json(b'"\xff"', max_bytes=10)


def test_several_values_may_follow_one_another():
    assert strict_json_values('{} [1]2 "a"\n', max_bytes=100) == [{}, [1], 2, "a"]
    assert strict_json_values(" \n", max_bytes=100) == []


def test_a_large_document_is_parsed_strictly_and_its_parts_are_checked_later():
    refused = {
        b"[1] [2]": "must be valid JSON",
        b'{"a": 1, "a": 2}': "must not repeat a key",
        b"[NaN]": "must not contain NaN, which is not JSON",
        b"\xff": "must be valid UTF-8",
    }
    for text, reason in refused.items():
        assert not_refused(unchecked_json, [text], reason) == []

    nul, good = unchecked_json(r'["\u0000", {"a": 1}]')
    check_json(good, max_fields=1)
    with pytest.raises(InvalidValue, match="NUL"):
        check_json(nul, max_fields=1)


@given(st.one_of(st.text(), values.map(json.dumps), values))
@example("\ud800")
def test_every_input_gives_a_storable_object_or_a_refusal(written):
    try:
        parsed = parse_arguments(written)
    except InvalidValue:
        return

    assert type(parsed) is dict
    assert "\\u0000" not in json.dumps(parsed).replace("\\\\", "")
    assert json.dumps(parsed, ensure_ascii=False, allow_nan=False).encode()
