"""What requests come to, and the same calls and results in another layout."""

from typing import Any

import pytest

from bench.layouts import (
    Bill,
    Exchange,
    ledger_share_after_consent,
    replayed,
    written,
)
from refine.rules.tokens import token_estimate

TOOL = {"type": "function", "function": {"name": "refinement"}}
SYSTEM = {"role": "system", "content": "You are Ada."}
LEDGER = "# Your core memories\n\none\ntwo"
OPENING = {"role": "user", "content": f"{LEDGER}\n\n# May it run?\n\n## Why\n\nWeekly."}
YES = {"role": "assistant", "content": "YES"}
BRIEF = {"role": "user", "content": "# Your session"}


def calling(*numbers: int) -> dict[str, Any]:
    calls = [
        {"id": f"call_{number}", "function": {"name": "refinement", "arguments": f"{number}"}}
        for number in numbers
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(number: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": f"done {number}"}


def asked(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"model": "trial/any", "tools": [TOOL], "messages": list(messages)}


BEGUN = (SYSTEM, OPENING, YES, BRIEF)
SESSION = [
    Exchange(asked(SYSTEM, OPENING), YES),
    Exchange(asked(*BEGUN), calling(1, 2)),
    Exchange(asked(*BEGUN, calling(1, 2), result(1), result(2)), calling(3)),
]


def texts(exchanges: list[Exchange]) -> list[str]:
    return [written(each.request) for each in exchanges]


def test_a_request_is_written_as_a_model_reads_it_tools_first() -> None:
    text = written(asked(SYSTEM, calling(1), result(1)))

    assert text == (
        '{"type": "function", "function": {"name": "refinement"}}\n'
        "system\nYou are Ada.\nassistant\n\nrefinement 1\ntool\ndone 1"
    )


def test_a_bill_counts_all_prompts_and_replies() -> None:
    bill = Bill.of(SESSION)

    assert bill.requests == 3
    assert bill.prompt_tokens == sum(map(token_estimate, texts(SESSION)))
    replies = (
        "assistant\nYES",
        "assistant\n\nrefinement 1\nrefinement 2",
        "assistant\n\nrefinement 3",
    )
    assert bill.completion_tokens == sum(map(token_estimate, replies))
    assert bill.prompt_tokens_after_consent == bill.prompt_tokens - token_estimate(
        written(SESSION[0].request)
    )


def test_the_beginning_of_an_earlier_request_is_unchanged() -> None:
    first, second, _ = texts(SESSION)

    bill = Bill.of(SESSION)

    assert bill.unchanged_tokens == len(first) // 4 + len(second) // 4
    assert bill.unchanged_share == bill.unchanged_tokens / bill.prompt_tokens
    after_consent = bill.unchanged_tokens / bill.prompt_tokens_after_consent
    assert bill.unchanged_share_after_consent == after_consent
    assert bill.new_tokens == bill.prompt_tokens - bill.unchanged_tokens


def test_a_cache_serves_from_any_earlier_request_but_no_further_than_the_first_difference() -> None:
    one, other = ({"role": "user", "content": letter * 100} for letter in "ab")
    requests = [asked(one, YES), asked(other), asked(one, BRIEF)]

    bill = Bill.of([Exchange(request, YES) for request in requests])

    begin = written(asked({"role": "user", "content": ""}))
    same = written(asked(one)) + "\n"
    assert bill.unchanged_tokens == len(begin) // 4 + len(same) // 4


def test_the_layout_of_refine_is_what_was_sent() -> None:
    again = replayed(SESSION, fresh_prompt=False, one_call=False)

    assert texts(again) == texts(SESSION)
    assert [each.reply for each in again] == [each.reply for each in SESSION]


def test_with_one_call_a_reply_each_call_is_answered_before_the_next() -> None:
    again = replayed(SESSION, fresh_prompt=False, one_call=True)

    assert [each.reply for each in again] == [YES, calling(1), calling(2), calling(3)]
    assert texts(again)[1:] == texts(
        [
            Exchange(asked(*BEGUN), calling(1)),
            Exchange(asked(*BEGUN, calling(1), result(1)), calling(2)),
            Exchange(asked(*BEGUN, calling(1), result(1), calling(2), result(2)), calling(3)),
        ]
    )


def test_a_fresh_prompt_has_ledger_and_brief_and_consent_has_no_tools() -> None:
    consent, first, second = replayed(SESSION, fresh_prompt=True, one_call=False)

    brief = {"role": "user", "content": f"{LEDGER}\n\n# Your session"}
    assert consent == Exchange({"messages": [SYSTEM, OPENING]}, YES)
    assert written(first.request) == written(asked(SYSTEM, brief))
    assert written(second.request) == written(
        asked(SYSTEM, brief, calling(1, 2), result(1), result(2))
    )


def test_the_share_up_to_the_end_of_the_ledger_is_of_every_request_after_consent() -> None:
    stable = token_estimate(written(asked(SYSTEM, {"role": "user", "content": LEDGER})))
    sent = sum(token_estimate(text) for text in texts(SESSION)[1:])

    assert ledger_share_after_consent(SESSION) == pytest.approx(2 * stable / sent)
