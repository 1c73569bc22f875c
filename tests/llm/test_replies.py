"""Every shape of an answer that providers were seen to send."""

import json
import time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from refine.llm.dialects import PLAIN, named
from refine.llm.messages import CallFailed, Reply, ToolCall
from refine.llm.replies import parse_reply
from refine.rules.prices import Usage


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


def repeated_call(written: Any) -> dict[str, Any]:
    """Return the only call as the history repeats it."""
    history = parsed({"content": None, "tool_calls": [written]}).message
    (only,) = history["tool_calls"]
    return dict(only)


def fault_of(answer: bytes) -> str:
    """Return the kind of fault that makes an answer unusable."""
    with pytest.raises(CallFailed) as fault:
        parse_reply(answer)
    assert fault.value.is_transient
    assert "canary" not in str(fault.value)
    return fault.value.kind


# -- text -----------------------------------------------------------------------------------------


def test_an_answer_in_words_is_a_reply():
    assert parsed(model="test/model", id="gen-1") == Reply(
        message={"role": "assistant", "content": "YES"},
        text="YES",
        tool_calls=(),
        model="test/model",
        is_cut=False,
        usage=Usage(),
        generation_id="gen-1",
    )
    for blank in (b"\n\n\n", b" \r\n\t", b"\n" * 10_000):  # keeps connections alive
        assert parse_reply(blank + body() + blank).text == "YES"
    for odd in (7, ["test/model"], {"id": "test/model"}, {}, False):
        assert parsed(model=odd).model == "", odd


# -- unusable answers -----------------------------------------------------------------------------


def test_invalid_json_is_unusable():
    for answer in (
        *(b"", b"\n\n", b"<html>canary</html>", b'{"choices": [{"message": {"content": "canary'),
        *(body()[:-1], b"\xff\xfe\xfa canary", b'{"id": ' + b"9" * 5_000 + b"}", b"[" * 100_000),
        *(b"[]", b"null", b"7", b'"canary"'),
    ):
        assert fault_of(answer) == "invalid_reply", answer[:40]


def test_an_error_inside_the_answer_comes_first():
    for error in ({"code": 502, "message": "canary"}, "canary", 502, True):
        assert fault_of(body(error=error)) == "provider_error", error
    failures = ("error", "network_error", "insufficient_system_resource")
    for failed in (
        *({"error": {"message": "canary"}}, {"error": "c"}),
        *({"finish_reason": reason} for reason in failures),
    ):
        choice = {"message": {"content": "canary", "tool_calls": [call()]}, **failed}
        assert fault_of(json.dumps({"choices": [choice]}).encode()) == "provider_error", failed
    for empty in (None, {}, ""):
        assert parsed(error=empty).text == "YES", empty


def test_no_providers_normal_end_means_cut():
    for reason in (
        *("stop", "STOP", "tool_calls", "function_call", "end_turn", "stop_sequence", "tool_use"),
        *("COMPLETE", "STOP_SEQUENCE", "TOOL_CALL", "eos", "eos_token", "end", None, ""),
    ):
        assert not parsed(finish_reason=reason).is_cut, reason


def test_every_other_end_means_cut():
    for reason in (
        *("length", "model_length", "max_tokens", "MAX_TOKENS", "model_context_window_exceeded"),
        *("content_filter", "SAFETY", "RECITATION", "refusal", "sensitive", "ERROR_TOXIC"),
        *("malformed_function_call", "repetition_truncation", "error_in_stop", "new", 7, ["stop"]),
    ):
        assert parsed(finish_reason=reason).is_cut, reason
    reply = parsed({"content": "YES, bec"}, finish_reason="length")
    assert (reply.is_cut, reply.text) == (True, "YES, bec")


def test_a_request_that_was_altered_on_its_way_is_a_final_error():
    for stage in (
        {"type": "guardrail", "data": {"canary": 1}},
        {"type": "plugin", "name": "context-compression"},
        *({"name": "Compressed"}, "GUARDRAIL", ["guardrails"]),
    ):
        with pytest.raises(CallFailed, match="guardrail or compression") as fault:
            parsed(openrouter_metadata={"pipeline": [{"type": "routing"}, stage]})

        assert (fault.value.kind, fault.value.is_transient) == ("altered_prompt", False)
        assert "canary" not in str(fault.value)
    for metadata in (
        *(None, "guardrail", [], {}, {"pipeline": None}, {"pipeline": "guardrail"}),
        *({"pipeline": []}, {"pipeline": [None, {"type": "routing"}]}, {"other": "guardrail"}),
    ):
        assert parsed(openrouter_metadata=metadata).text == "YES", metadata


# -- tool calls -----------------------------------------------------------------------------------


def test_a_flood_of_calls_is_refused_before_it_is_read():
    assert len(parsed({"tool_calls": [call()] * 100}).tool_calls) == 100
    began = time.monotonic()
    for flood in ([call()] * 101, [{}] * 200_000):
        assert fault_of(body({"tool_calls": flood})) == "too_many_calls"
    assert time.monotonic() - began < 5


def test_malformed_tool_calls_are_ignored():
    for malformed in (None, [], {}, "", "refinement", 7):
        reply = parsed({"content": "YES", "tool_calls": malformed})
        assert reply.tool_calls == ()
        assert reply.message == {"role": "assistant", "content": "YES"}, malformed


def test_missing_or_empty_arguments_are_an_empty_object():
    written = [call(empty) for empty in ("", " ", None, "null", "{}", "\n")]
    for each in [*written, call(function={"name": "refinement"})]:
        assert parsed_call(each) == ToolCall("call-7", "refinement", {})


def test_malformed_arguments_are_a_problem():
    for arguments, problem in (
        *(
            ("[]", "one JSON object"),
            ([], "written as a string"),
            ('{"id": 7', "must be valid JSON"),
        ),
        *(({"action": "delete", "id": 7}, "written as a string"), (r'{"a": "\u0000"}', "NUL")),
    ):
        tool_call = parsed_call(call(arguments))
        assert tool_call.arguments == {}
        assert problem in (tool_call.problem or ""), arguments


def test_a_call_without_a_function_name_has_a_problem():
    unnamed = [None, "refinement", {}, *({"name": n, "arguments": "{}"} for n in (None, "", ["r"]))]
    for written in [*(call(function=each) for each in unnamed), {"id": "call-7"}]:
        expected = ToolCall("call-7", "", {}, problem="a tool call must name a function")
        assert parsed_call(written) == expected, written
    for malformed in (None, 7, "refinement", [], {}):
        tool_call = parsed_call(malformed)
        assert (tool_call.id, bool(tool_call.problem)) == ("call00000", True), malformed


def test_a_call_without_an_id_is_given_a_free_one():
    for missing in (None, "", 7, ["call-7"], {}):
        calls = parsed({"tool_calls": [call(id="call-7"), call(id=missing)]}).tool_calls
        assert [(each.id, each.problem) for each in calls] == [
            ("call-7", None),
            ("call00001", None),
        ]
    first, second = parsed({"tool_calls": [call(id="call00001"), call(id=None)]}).tool_calls
    assert (first.id != second.id, second.problem) == (True, None)


@given(st.lists(st.sampled_from([None, "a", "a_1", "a_2", "a_2_2", "call00001", "call00002"])))
@example(["a_2", "a", "a"])
def test_calls_never_share_an_id(ids):
    reply = parsed({"tool_calls": [call(id=each) for each in ids]})

    parsed_ids = [each.id for each in reply.tool_calls]

    assert len(set(parsed_ids)) == len(ids)
    assert [each["id"] for each in reply.message.get("tool_calls", [])] == parsed_ids


def test_the_last_call_of_an_answer_that_was_cut_is_never_whole():
    for arguments in ('{"action": "delete", "id": 7}', '{"action": "del'):
        written = [call('{"n": 1}', id="a"), call('{"n": 2}', id="b"), call(arguments, id="c")]
        *whole, last = parsed({"tool_calls": written}, finish_reason="length").tool_calls
        assert [(each.arguments["n"], each.problem) for each in whole] == [(1, None), (2, None)]
        assert "cut off before its end" in (last.problem or ""), arguments


# -- the history ----------------------------------------------------------------------------------


def test_history_repeats_a_message_exactly():
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


def test_history_keeps_the_form_of_the_content():
    for content in ("YES", [{"type": "text", "text": "YES"}], "whole \U0001f600"):
        assert parsed({"content": content}).message == {"role": "assistant", "content": content}
    for empty in ({}, *({"content": each} for each in (None, "", [], 7, True, {"text": "YES"}))):
        # providers refuse an empty message
        assert parsed(empty).message == {"role": "assistant", "content": "(no answer)"}
    assert parsed({"tool_calls": [call()]}).message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [call()],
    }


def test_history_holds_no_half_of_a_surrogate_pair():
    """No server takes a request that repeats one."""
    signed = call(extra={"\udc00": ["\ud83d"]}, id="call-\ud83d")
    message = {"content": "half \ud83d", "reasoning": "\ud83d \ude00", "tool_calls": [signed]}

    history = parsed(message).message

    assert history == {
        "role": "assistant",
        "content": "half \ufffd",
        "reasoning": "\ufffd \ufffd",
        "tool_calls": [call(extra={"\ufffd": ["\ufffd"]}, id="call-\ufffd")],
    }


def test_an_answer_is_read_to_a_depth_that_any_server_takes_back():
    def details(depth: int) -> bytes:
        return body({"content": "YES", "reasoning_details": json.loads("[" * depth + "]" * depth)})

    assert parse_reply(details(60)).text == "YES"
    assert fault_of(details(61)) == "invalid_reply"
    assert fault_of(b"[" * 100_000) == "invalid_reply"


def test_the_id_of_an_answer_is_kept_if_it_looks_like_one():
    for name in ("gen-1", "chatcmpl-AbC_9", "a" * 200, "eA==", "x/1.2:3+4"):
        assert parsed(id=name).generation_id == name
    for other in (None, 7, "", "a" * 201, "a b", "a\u0000", "\ud83d", "Tee\n", {"id": "gen-1"}):
        assert parsed(id=other).generation_id is None, other


def test_the_history_has_the_fields_of_the_dialect():
    message = {"content": None, "reasoning_content": "Let me see.", "tool_calls": [call()]}

    def kept(name: str) -> dict[str, Any]:
        return parse_reply(body(message), named(name)).message

    assert kept("deepseek") == {**message, "role": "assistant", "content": ""}
    assert kept("moonshot") == {**message, "role": "assistant"}
    del message["reasoning_content"]
    assert kept("deepseek")["reasoning_content"] == ""
    assert kept("openai") == {"role": "assistant", "content": None, "tool_calls": [call()]}


def test_history_holds_only_valid_calls():
    for arguments in (
        *("", " ", None, "null", " null\n", "[]", [], {"id": 7}, '{"id": 7', '{"id": 7} {}', "7"),
    ):
        assert repeated_call(call(arguments)) == call("{}"), arguments
    unknown = {"name": "unknown", "arguments": "{}"}
    impossible = ("", 7, "two words", "a" * 65, "n\u00e9e", "\ud800", "a\n")
    for function in (None, {}, *({"name": name, "arguments": "{}"} for name in impossible)):
        assert repeated_call(call(function=function))["function"] == unknown, function
    for malformed in (None, "refinement", 7):
        expected = {"id": "call00000", "type": "function", "function": unknown}
        assert repeated_call(malformed) == expected, malformed
    signed = {"extra_content": {"google": {"thought_signature": "s=="}}}
    assert repeated_call(call('{"id": 7', **signed)) == call("{}", **signed)
    arguments = '{ "action":"search" }'
    assert repeated_call(call(arguments, id=None)) == call(arguments, id="call00000")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
odd_messages = json_values | st.fixed_dictionaries(
    {}, optional={"content": json_values, "tool_calls": st.lists(json_values)}
)


@given(odd_messages, json_values, json_values, json_values)
def test_every_answer_gives_a_reply_or_a_known_fault(message, finish_reason, usage, metadata):
    sent = body(
        message or {}, finish_reason=finish_reason, usage=usage, openrouter_metadata=metadata
    )

    try:
        reply = parse_reply(sent)
    except CallFailed:
        return

    assert json.dumps(reply.message)
    for each in reply.message.get("tool_calls", []):
        assert isinstance(json.loads(each["function"]["arguments"]), dict)


# -- usage ----------------------------------------------------------------------------------------


def test_usage_comes_from_the_provider():
    usage = {
        "prompt_tokens": 10_000_000,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 900},
        "cost": 0.00012,
    }

    assert parsed(usage=usage).usage == Usage(
        10_000_000, 900, 20, Decimal("0.00012"), is_counted=True
    )


def test_missing_or_malformed_usage_counts_as_zero():
    for usage in (None, [], "much", 7, {}, {"prompt_tokens_details": None}):
        assert parsed(usage=usage).usage == Usage(), usage
    for count in (None, "100", 100.5, -1, True, 10_000_001, [1], {}):
        usage = {"prompt_tokens": count, "completion_tokens": count, "prompt_tokens_details": count}
        assert parsed(usage=usage).usage == Usage(), count


def test_tokens_are_counted_if_those_of_the_prompt_and_of_the_output_are_known():
    for counts, is_counted in (
        *(((100, 10, 110), True), ((100, 0, 100), True), ((100, None, 110), True)),
        *(((100, None, None), False), ((100, "10", None), False), ((0, 10, None), False)),
        *(((None, 10, 110), False), ((None, None, 110), False), (("100", "10", "110"), False)),
    ):
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        usage = dict(zip(names, counts, strict=True))
        assert parsed(usage=usage).usage.is_counted is is_counted, counts


def test_the_rest_of_the_total_besides_the_prompt_is_output():
    for completion, total, expected in (
        *((151, 553, 533), (None, 553, 533), ("10", 553, 533), (151, 171, 151)),
        *((151, 100, 151), (151, None, 151), (151, 10_000_001, 151), (None, 5, 0)),
    ):
        usage = {"prompt_tokens": 20, "completion_tokens": completion, "total_tokens": total}
        assert parsed(usage=usage).usage.completion_tokens == expected, (completion, total)
    assert parsed(usage={"total_tokens": 553}).usage == Usage()


def test_the_cost_is_exact_to_six_places_or_unknown():
    for cost, cost_usd in (
        *((1, "1"), (0.1, "0.1"), ("0.0123", "0.0123"), (100, "100"), (0, "0"), ("0.0", "0")),
        *((0.000_126_000_000_000_000_02, "0.000126"), (1e-7, "0"), ("1e-99999", "0")),
        *(("1e-9999999", "0"), ("0." + "1" * 5_000, "0.111111")),
    ):
        assert parsed(usage={"cost": cost}).usage.cost_usd == Decimal(cost_usd), cost
    for cost in (
        *(None, "", "free", "NaN", "-1", -0.1, 101, "100.01", 10**5, "Infinity", float("nan")),
        *("1e9999999", "1" * 5_000, "1e99999999999999999999", True, [], {}),
    ):
        assert parsed(usage={"cost": cost}).usage.cost_usd is None, cost


def test_a_proxys_cost_is_in_a_header_where_0_means_unknown():
    litellm = named("litellm")
    for header, cost in (("0.0125", Decimal("0.0125")), ("0.0", None), ("None", None), ("", None)):
        headers = {"x-litellm-response-cost": header}
        assert parse_reply(body(), litellm, headers).usage.cost_usd == cost, header
        assert parse_reply(body(), PLAIN, headers).usage.cost_usd is None, header
    both = parse_reply(body(usage={"cost": 1}), litellm, {"x-litellm-response-cost": "2"})
    assert both.usage.cost_usd == 1
    free_upstream = parse_reply(body(usage={"cost": 0}), litellm, {"x-litellm-response-cost": "2"})
    assert free_upstream.usage.cost_usd == 2


def test_with_a_key_of_ones_own_the_upstreams_bill_is_a_part_of_the_cost():
    for is_byok, upstream, cost_usd in (
        *((True, 0.5, "0.52"), (True, "0", "0.02"), (True, None, None), (True, -1, None)),
        *((False, 0.5, "0.02"), ("true", 0.5, "0.02"), (None, 0.5, "0.02")),
    ):
        details = {"upstream_inference_cost": upstream}
        usage = {"cost": 0.02, "is_byok": is_byok, "cost_details": details}
        expected = None if cost_usd is None else Decimal(cost_usd)
        assert parsed(usage=usage).usage.cost_usd == expected, (is_byok, upstream)
    assert parsed(usage={"cost": 0, "is_byok": True}).usage.cost_usd is None
