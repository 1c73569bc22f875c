"""Every shape of an answer that providers were seen to send."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refine.errors import ProviderError
from refine.llm.messages import Reply, ToolCall, Usage
from refine.llm.replies import Unusable, parse_reply


def call(arguments: Any = '{"action": "search"}', **fields: Any) -> dict[str, Any]:
    function = {"name": "refinement", "arguments": arguments}
    return {"id": "call-7", "type": "function", "function": function, **fields}


def body(message: Any = None, *, finish_reason: Any = "stop", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": "YES"} if message is None else message
    choices = [{"index": 0, "finish_reason": finish_reason, "message": message}]
    return json.dumps({"choices": choices, **fields}).encode()


def parsed(message: Any = None, **fields: Any) -> Reply:
    return parse_reply(body(message, **fields))


def parsed_call(written: Any, **fields: Any) -> ToolCall:
    (only,) = parsed({"content": None, "tool_calls": [written]}, **fields).tool_calls
    return only


def called(written: dict[str, Any]) -> dict[str, Any]:
    """The one call as the history repeats it."""
    history = parsed({"content": None, "tool_calls": [written]}).message
    (only,) = history["tool_calls"]
    return dict(only)


# -- words ----------------------------------------------------------------------------------------


def test_an_answer_in_words_is_a_reply() -> None:
    reply = parsed(model="test/model", id="gen-1")

    assert reply == Reply(
        message={"role": "assistant", "content": "YES"},
        text="YES",
        tool_calls=(),
        model="test/model",
        is_cut=False,
        usage=Usage(),
        generation_id="gen-1",
    )


@pytest.mark.parametrize("odd", [None, 7, ["test/model"], {}])
def test_a_model_or_an_id_of_another_shape_counts_as_not_named(odd: Any) -> None:
    reply = parsed(model=odd, id=odd)

    assert (reply.model, reply.generation_id) == (None, None)


@pytest.mark.parametrize("white", [b"\n\n\n", b" \r\n\t", b"\n" * 10_000])
def test_blank_lines_that_keep_the_connection_alive_are_skipped(white: bytes) -> None:
    assert parse_reply(white + body() + white).text == "YES"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", ""),
        (None, None),
        (7, None),
        ({"text": "YES"}, None),
        ([], None),
        ([{"type": "text", "text": "YES"}], "YES"),
        ([{"type": "text", "text": "Y"}, {"type": "text", "text": "ES"}], "YES"),
        ([{"type": "image_url"}, "NO", None, {"text": 7}, {"text": "YES"}], "YES"),
        ("cut \ud83d", "cut \ufffd"),
        ("a\x00b", "a\ufffdb"),
        ([{"text": "\ud83d"}], "\ufffd"),
        ("whole 🦉", "whole 🦉"),
    ],
)
def test_the_text_is_what_was_said_in_words_that_can_be_stored(content: Any, text: Any) -> None:
    assert parsed({"content": content}).text == text


def test_a_message_without_content_has_no_text() -> None:
    assert parsed({"role": "assistant"}).text is None


# -- what is no answer ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\n\n",
        b"<html>canary</html>",
        b'{"choices": [{"message": {"content": "canary',
        body()[:-1],
        b"\xff\xfe\xfa canary",
        b'{"id": ' + b"9" * 5_000 + b"}",
        b"[" * 100_000,
        b"[]",
        b"null",
        b"7",
        b'"canary"',
    ],
    ids=range(12),
)
def test_what_is_no_json_object_may_be_asked_for_again(answer: bytes) -> None:
    with pytest.raises(Unusable) as fault:
        parse_reply(answer)

    assert fault.value.kind == "invalid_reply"
    assert "canary" not in str(fault.value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": {}},
        {"choices": "canary"},
        {"choices": [None]},
        {"choices": ["canary"]},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": "canary"}]},
        {"choices": [{"message": ["canary"]}]},
    ],
)
def test_an_answer_without_a_message_may_be_asked_for_again(fields: dict[str, Any]) -> None:
    with pytest.raises(Unusable) as fault:
        parse_reply(json.dumps(fields).encode())

    assert fault.value.kind == "empty_reply"
    assert "canary" not in str(fault.value)


@pytest.mark.parametrize("error", [{"code": 502, "message": "canary"}, "canary", 502, True])
def test_an_error_inside_the_answer_counts_before_all_else(error: Any) -> None:
    with pytest.raises(Unusable) as fault:
        parsed(error=error)

    assert fault.value.kind == "provider_error"
    assert "canary" not in str(fault.value)


@pytest.mark.parametrize(
    "fields", [{"error": {"message": "canary"}}, {"error": "canary"}, {"finish_reason": "error"}]
)
def test_calls_of_a_choice_that_failed_are_never_taken(fields: dict[str, Any]) -> None:
    choice = {"message": {"content": "canary", "tool_calls": [call()]}, **fields}

    with pytest.raises(Unusable) as fault:
        parse_reply(json.dumps({"choices": [choice]}).encode())

    assert fault.value.kind == "provider_error"
    assert "canary" not in str(fault.value)


@pytest.mark.parametrize("nothing", [None, {}, ""])
def test_an_empty_error_is_none(nothing: Any) -> None:
    assert parsed(error=nothing).text == "YES"


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "content_filter", None, 7, "new"])
def test_no_other_reason_to_finish_makes_a_difference(reason: Any) -> None:
    assert not parsed(finish_reason=reason).is_cut


# -- what the provider did to the request ---------------------------------------------------------


@pytest.mark.parametrize(
    "stage",
    [
        {"type": "guardrail", "data": {"canary": 1}},
        {"type": "plugin", "name": "context-compression"},
        {"name": "Compressed"},
        "GUARDRAIL",
        ["guardrails"],
    ],
)
def test_a_request_that_was_altered_on_its_way_is_an_error_for_good(stage: Any) -> None:
    metadata = {"pipeline": [{"type": "routing"}, stage]}

    with pytest.raises(ProviderError, match="guardrail or compression") as fault:
        parsed(openrouter_metadata=metadata)

    assert fault.value.kind == "altered_prompt"
    assert "canary" not in str(fault.value)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "guardrail",
        [],
        {},
        {"pipeline": None},
        {"pipeline": "guardrail"},
        {"pipeline": []},
        {"pipeline": [None, {"type": "routing"}]},
        {"other": "guardrail"},
    ],
)
def test_metadata_that_names_no_such_stage_is_no_matter(metadata: Any) -> None:
    assert parsed(openrouter_metadata=metadata).text == "YES"


# -- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["tool_calls", "stop", None, "unknown"])
def test_a_call_counts_whatever_the_reason_to_finish(reason: Any) -> None:
    written = call('{"action": "delete", "id": 7}')

    assert parsed_call(written, finish_reason=reason) == ToolCall(
        "call-7", "refinement", {"action": "delete", "id": 7}
    )


def test_calls_keep_their_order() -> None:
    written = [call('{"n": 1}', id="b"), call('{"n": 2}', id="a"), call('{"n": 3}', id="c")]

    calls = parsed({"tool_calls": written}).tool_calls

    assert [(each.id, each.arguments["n"]) for each in calls] == [("b", 1), ("a", 2), ("c", 3)]


def test_words_may_go_along_with_calls() -> None:
    reply = parsed({"content": "I will look.", "tool_calls": [call()]})

    assert (reply.text, len(reply.tool_calls)) == ("I will look.", 1)


@pytest.mark.parametrize("nothing", [None, [], {}, "", "refinement", 7])
def test_tool_calls_of_another_shape_are_none(nothing: Any) -> None:
    reply = parsed({"content": "YES", "tool_calls": nothing})

    assert reply.tool_calls == ()
    assert reply.message == {"role": "assistant", "content": "YES"}


@pytest.mark.parametrize("nothing", ["", " ", None, "null", "{}", "\n"])
def test_empty_arguments_are_an_empty_object(nothing: Any) -> None:
    assert parsed_call(call(nothing)) == ToolCall("call-7", "refinement", {})


def test_missing_arguments_are_an_empty_object() -> None:
    written = call(function={"name": "refinement"})

    assert parsed_call(written) == ToolCall("call-7", "refinement", {})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("[]", "one JSON object"),
        ([], "written as a string"),
        ({"action": "delete", "id": 7}, "written as a string"),
        (7, "written as a string"),
        ('{"id": 7', "must be valid JSON"),
        ('{"id": 7}{"id": 8}', "must be valid JSON"),
        ('```json\n{"id": 7}\n```', "must be valid JSON"),
        ('{"id": 7, "id": 8}', "repeat a key"),
        ('{"id": NaN}', "not JSON"),
        (r'{"content": "\u0000"}', "NUL"),
        (r'{"content": "\ud800"}', "valid Unicode"),
    ],
)
def test_a_call_with_malformed_arguments_has_a_problem_and_no_arguments(
    arguments: Any, problem: str
) -> None:
    parsed_one = parsed_call(call(arguments))

    assert parsed_one.arguments == {}
    assert problem in (parsed_one.problem or "")


def test_an_unknown_tool_is_left_to_whoever_executes() -> None:
    written = call(function={"name": "web_search", "arguments": "{}"})

    assert parsed_call(written) == ToolCall("call-7", "web_search", {})


@pytest.mark.parametrize(
    "written",
    [
        call(function=None),
        call(function="refinement"),
        call(function={}),
        call(function={"name": None, "arguments": "{}"}),
        call(function={"name": "", "arguments": "{}"}),
        call(function={"name": ["refinement"], "arguments": "{}"}),
        {"id": "call-7"},
    ],
)
def test_a_call_that_names_no_function_has_a_problem(written: dict[str, Any]) -> None:
    assert parsed_call(written) == ToolCall(
        "call-7", "", {}, problem="a tool call names a function"
    )


@pytest.mark.parametrize("written", [None, 7, "refinement", [], {}])
def test_a_call_of_another_shape_has_an_id_and_a_problem(written: Any) -> None:
    parsed_one = parsed_call(written)

    assert parsed_one.id == "call_0"
    assert parsed_one.problem


@pytest.mark.parametrize("missing", [None, "", 7, ["call-7"], {}])
def test_a_call_without_an_id_is_given_one(missing: Any) -> None:
    written = [call(id="call-7"), call(id=missing)]

    calls = parsed({"tool_calls": written}).tool_calls

    assert [(each.id, each.problem) for each in calls] == [("call-7", None), ("call_1", None)]


def test_the_second_call_of_one_id_has_a_problem_and_an_id_of_its_own() -> None:
    written = [call('{"n": 1}'), call('{"n": 2}')]

    first, second = parsed({"tool_calls": written}).tool_calls

    assert (first.id, first.problem) == ("call-7", None)
    assert second.id != "call-7"
    assert "used before" in (second.problem or "")


def test_an_id_that_is_given_to_a_call_is_no_fault_of_that_call() -> None:
    written = [call(id="call_1"), call(id=None)]

    first, second = parsed({"tool_calls": written}).tool_calls

    assert first.id != second.id
    assert second.problem is None


@given(st.lists(st.sampled_from([None, "a", "a_1", "a_2", "a_2_2", "call_1", "call_2"])))
@example(["a_2", "a", "a"])
def test_no_two_calls_ever_share_an_id(ids: list[str | None]) -> None:
    reply = parsed({"tool_calls": [call(id=each) for each in ids]})

    parsed_ids = [each.id for each in reply.tool_calls]

    assert len(set(parsed_ids)) == len(ids)
    assert [each["id"] for each in reply.message.get("tool_calls", [])] == parsed_ids


@pytest.mark.parametrize("arguments", ['{"action": "delete", "id": 7}', '{"action": "del'])
def test_no_call_of_an_answer_that_was_cut_may_be_executed(arguments: str) -> None:
    reply = parsed({"content": None, "tool_calls": [call(arguments)]}, finish_reason="length")

    assert reply.is_cut
    assert "cut at the output limit" in (reply.tool_calls[0].problem or "")


def test_words_that_were_cut_say_so() -> None:
    reply = parsed({"content": "YES, bec"}, finish_reason="length")

    assert (reply.is_cut, reply.text) == (True, "YES, bec")


# -- the history ----------------------------------------------------------------------------------


def test_the_history_repeats_a_message_to_the_letter() -> None:
    message = {
        "role": "assistant",
        "content": "I will look.",
        "tool_calls": [
            call('{ "action":"search",\t"query" : "t\\u00e9a" }', index=0, extra={"sign": "x=="})
        ],
        "reasoning": "Two of them look alike.",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "…", "signature": "s==", "index": 1},
            {"type": "reasoning.encrypted", "data": "d==", "id": None},
        ],
    }

    assert parsed(message).message == message


@pytest.mark.parametrize("content", ["", "YES", [{"type": "text", "text": "YES"}], "half \ud83d"])
def test_the_history_keeps_the_content_in_the_form_it_came_in(content: Any) -> None:
    assert parsed({"content": content}).message == {"role": "assistant", "content": content}


@pytest.mark.parametrize("message", [{}, {"content": None}])
def test_a_message_without_words_and_calls_has_empty_content_in_the_history(message: Any) -> None:
    assert parsed(message).message == {"role": "assistant", "content": ""}


def test_a_message_of_calls_alone_has_null_content_in_the_history() -> None:
    assert parsed({"tool_calls": [call()]}).message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [call()],
    }


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system"},
        {"refusal": "no"},
        {"annotations": []},
        {"reasoning": None},
        {"reasoning_details": None},
        {"audio": {}},
    ],
)
def test_nothing_else_goes_into_the_history(message: dict[str, Any]) -> None:
    history = parsed({"content": "YES", **message}).message

    assert history == {"role": "assistant", "content": "YES"}


@pytest.mark.parametrize(
    "arguments",
    ["", " ", None, "null", " null\n", "[]", [], {"id": 7}, '{"id": 7', '{"id": 7} {}', "7"],
)
def test_arguments_that_are_no_object_are_an_empty_one_in_the_history(arguments: Any) -> None:
    assert called(call(arguments)) == call("{}")


@pytest.mark.parametrize("function", [None, {}, {"name": 7}, {"name": ""}])
def test_a_call_without_a_function_has_a_name_in_the_history(function: Any) -> None:
    history = called(call(function=function))

    assert history["function"] == {"name": "unknown", "arguments": "{}"}


def test_a_call_without_an_id_has_one_in_the_history_and_keeps_its_arguments() -> None:
    arguments = '{ "action":"search" }'

    assert called(call(arguments, id=None)) == call(arguments, id="call_0")


@pytest.mark.parametrize("written", [None, "refinement", 7])
def test_a_call_of_another_shape_is_a_whole_one_in_the_history(written: Any) -> None:
    assert called(written) == {
        "id": "call_0",
        "type": "function",
        "function": {"name": "unknown", "arguments": "{}"},
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
odd_calls = st.fixed_dictionaries(
    {},
    optional={
        "id": json_values,
        "type": json_values,
        "function": json_values
        | st.fixed_dictionaries({}, optional={"name": json_values, "arguments": json_values}),
    },
)
odd_messages = json_values | st.fixed_dictionaries(
    {}, optional={"content": json_values, "tool_calls": json_values | st.lists(odd_calls)}
)


@given(odd_messages, json_values, json_values, json_values)
def test_whatever_is_sent_it_gives_a_reply_or_a_fault_that_callers_know(
    message: Any, finish_reason: Any, usage: Any, metadata: Any
) -> None:
    sent = body(
        message or {}, finish_reason=finish_reason, usage=usage, openrouter_metadata=metadata
    )

    try:
        reply = parse_reply(sent)
    except (Unusable, ProviderError):
        return

    assert json.dumps(reply.message)
    for each in reply.message.get("tool_calls", []):
        assert isinstance(json.loads(each["function"]["arguments"]), dict)


# -- figures --------------------------------------------------------------------------------------


def test_usage_is_what_the_provider_counts() -> None:
    usage = {
        "prompt_tokens": 10_000_000,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 900},
        "cost": 0.00012,
    }

    assert parsed(usage=usage).usage == Usage(10_000_000, 900, 20, Decimal("0.00012"))


@pytest.mark.parametrize("usage", [None, [], "much", 7, {}, {"prompt_tokens_details": None}])
def test_usage_that_is_missing_or_of_another_shape_is_nothing(usage: Any) -> None:
    assert parsed(usage=usage).usage == Usage()


@pytest.mark.parametrize("count", [None, "100", 100.5, -1, True, 10_000_001, [1], {}])
def test_counts_of_another_shape_are_nothing(count: Any) -> None:
    usage = {
        "prompt_tokens": count,
        "completion_tokens": count,
        "prompt_tokens_details": {"cached_tokens": count},
    }

    assert parsed(usage=usage).usage == Usage()


@pytest.mark.parametrize("details", [None, [], "many", 7, {}])
def test_details_of_another_shape_leave_the_rest(details: Any) -> None:
    usage = {"prompt_tokens": 7, "prompt_tokens_details": details}

    assert parsed(usage=usage).usage == Usage(prompt_tokens=7)


@pytest.mark.parametrize(
    ("cost", "cost_usd"),
    [
        (1, "1"),
        (0.1, "0.1"),
        ("0.0123", "0.0123"),
        (1e-7, "0.0000001"),
        (99_999, "99999"),
    ],
)
def test_the_cost_is_exact(cost: Any, cost_usd: str) -> None:
    assert parsed(usage={"cost": cost}).usage.cost_usd == Decimal(cost_usd)


@pytest.mark.parametrize(
    "cost", [None, "", "free", "NaN", "-1", -0.1, 10**5, "Infinity", True, [], {}, float("nan")]
)
def test_a_cost_of_another_shape_is_nothing(cost: Any) -> None:
    assert parsed(usage={"cost": cost}).usage.cost_usd == 0
