"""The bill of a real session, and the promises about it."""

from dataclasses import replace

import pytest

from bench.bill import Bill, Exchange, broken_promises, record
from refine import settings
from refine.llm.messages import Message

GOOD, READ = Bill(5, 400, 50, 270, 300), Bill(8, 500, 70, 300, 400)
NAIVE = Bill(12, 1_000, 60, 800, 900)


def results_in(last: Exchange) -> list[Message]:
    """What the tool answered, in order; a naive layout has each right after its call."""
    return [each for each in last.request["messages"] if each["role"] == "tool"]


def test_a_session_makes_ten_changes_and_keeps_the_promises(app):
    changes, ours = record(100, replace(settings.current(), second_reading="on"))

    assert changes == 10
    made = [len(each.reply.get("tool_calls", ())) for each in ours.exchanges]
    assert made == [0, 4, 4, 2, 1]
    naive = ours.naively()
    assert len(naive) == 12
    assert all(len(each.reply["tool_calls"]) == 1 for each in naive[1:])
    assert "tools" not in naive[0].request
    results, naive_results = (results_in(each[-1]) for each in (ours.exchanges, naive))
    assert len(results) == 10
    assert results == naive_results
    assert len(ours.readings) == 3
    assert list(broken_promises(100, 10, *ours.bills(), Bill.of(naive))) == []


@pytest.mark.parametrize(
    ("changes", "place", "figures", "words"),
    [
        (9, 0, {}, "9 of 10 changes made"),
        (10, 0, {"unchanged_tokens": 269}, "89.7% unchanged after consent"),
        (10, 0, {"prompt_tokens": 399}, "25.3% more for second readings"),
        (10, 2, {"prompt_tokens": 998}, "50.1% of the naive prompt tokens"),
    ],
)
def test_one_broken_promise_is_named(changes, place, figures, words):
    bills = [GOOD, READ, NAIVE]
    assert list(broken_promises(100, 10, *bills)) == []

    bills[place] = replace(bills[place], **figures)

    assert list(broken_promises(100, changes, *bills)) == [f"{words} with 100 memories"]
