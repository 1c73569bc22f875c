"""The bill of a real session, and the promises about it."""

from dataclasses import replace

import pytest
from flask import Flask

from bench.bill import Bill, Exchange, broken_promises, naively, record
from refine import settings
from refine.llm.messages import Message

GOOD, NAIVE = Bill(5, 500, 50, 360, 400), Bill(12, 1_000, 60, 800, 900)


def results_in(last: Exchange) -> list[Message]:
    """What the tool answered, in order; a naive layout has each right after its call."""
    return [each for each in last.request["messages"] if each["role"] == "tool"]


def test_a_session_makes_ten_changes_and_keeps_the_promises(app: Flask) -> None:
    session, exchanges = record(100, settings.current())

    assert (session.status, session.mutation_count) == ("completed", 10)
    assert session.stats["deleted"] == session.stats["updated"] == 3
    made = [len(each.reply.get("tool_calls", ())) for each in exchanges]
    assert made == [0, 4, 4, 2, 1]
    naive = naively(exchanges)
    assert len(naive) == 12
    assert all(len(each.reply["tool_calls"]) == 1 for each in naive[1:])
    assert "tools" not in naive[0].request
    ours, theirs = (results_in(each[-1]) for each in (exchanges, naive))
    assert len(ours) == 10
    assert ours == theirs
    assert list(broken_promises(100, 10, Bill.of(exchanges), Bill.of(naive))) == []


@pytest.mark.parametrize(
    ("changes", "figures", "words"),
    [
        (9, {}, "9 of 10 changes made with 100 memories"),
        (10, {"prompt_tokens": 501}, "50.1% of the naive prompt tokens with 100 memories"),
        (10, {"unchanged_tokens": 359}, "89.8% unchanged after consent with 100 memories"),
    ],
)
def test_one_broken_promise_is_named(changes: int, figures: dict[str, int], words: str) -> None:
    assert list(broken_promises(100, 10, GOOD, NAIVE)) == []
    assert list(broken_promises(100, changes, replace(GOOD, **figures), NAIVE)) == [words]
