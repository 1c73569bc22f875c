"""The bill of a real session, and the promises about it."""

from dataclasses import replace

import pytest
from flask import Flask

from bench.bill import NAIVE, REFINE, Session, broken_promises, measure, record
from bench.layouts import Bill, replayed, written
from bench.simulated_models.conversation import Conversation
from bench.tidying import tidying
from refine import settings
from tests.bench.conversations import conversation

GOOD = Session(
    memories=100,
    ledger_tokens=2_000,
    changes=10,
    ledger_share_after_consent=0.7,
    bills={
        REFINE: Bill(5, 500, 50, 360, 400),
        NAIVE: Bill(12, 1_000, 60, 800, 900),
    },
)


def test_a_session_makes_ten_changes_of_three_kinds_a_few_in_a_reply(app: Flask) -> None:
    session, exchanges = record(50, settings.current(), calls_per_reply=4)

    assert (session.status, session.mutation_count) == ("completed", 10)
    assert session.stats["deleted"] == session.stats["updated"] == 3
    made = [len(each.reply.get("tool_calls", ())) for each in exchanges]
    assert made == [0, 4, 4, 2, 1]


def test_a_session_sends_its_replay_without_any_change_of_layout(app: Flask) -> None:
    _, exchanges = record(50, settings.current(), calls_per_reply=5)

    again = replayed(exchanges, fresh_prompt=False, one_call=False)

    assert [written(each.request) for each in again] == [
        written(each.request) for each in exchanges
    ]


def test_a_small_ledger_keeps_the_promises(app: Flask) -> None:
    measured = measure(50, settings.current())

    assert (measured.memories, measured.changes) == (50, 10)
    assert [bill.requests for bill in measured.bills.values()] == [5, 12, 5, 12]
    assert 0.5 < measured.ledger_share_after_consent < 0.9
    assert list(broken_promises([measured])) == []


def test_promises_are_kept_at_their_limits() -> None:
    assert list(broken_promises([GOOD])) == []


BREAKING = [
    ({"changes": 9}, {}, "9 of 10 changes made with 100 memories"),
    ({}, {"prompt_tokens": 501}, "50.1% of the naive prompt tokens with 100 memories"),
    ({}, {"unchanged_tokens": 359}, "89.8% unchanged after consent with 100 memories"),
]


@pytest.mark.parametrize(("figures", "bill", "words"), BREAKING)
def test_one_broken_promise_is_named(
    figures: dict[str, int], bill: dict[str, int], words: str
) -> None:
    bills = {**GOOD.bills, REFINE: replace(GOOD.bills[REFINE], **bill)}
    worse = replace(GOOD, bills=bills, **figures)

    assert list(broken_promises([GOOD, worse])) == [words]


# -- the simulated model --------------------------------------------------------------------------

SAME = ("Ruth keeps 3 old hens.", "Ruth keeps three old hens!")


def test_the_model_merges_tightens_and_completes() -> None:
    ledger = (*SAME, "The tea of Anna was cold.", "Oskar laughed.")

    (merge, *updates) = tidying(conversation(*ledger), calls_per_reply=4)

    assert merge == {"action": "consolidate", "ids": [1, 2], "content": SAME[1]}
    assert updates == [{"action": "update", "id": 3, "content": "tea of Anna was cold."}]


def test_the_model_goes_on_where_its_last_reply_ended_and_then_completes() -> None:
    deleted = ({"action": "delete", "id": 9}, {"type": "deleted", "id": 9})
    ledger = (*SAME, "The tea of Anna was cold.")

    replies = [
        tidying(conversation(*ledger, exchanges=(deleted,) * rounds), calls_per_reply=1)
        for rounds in range(3)
    ]

    assert [reply[0]["action"] for reply in replies] == ["consolidate", "update", "complete"]


def test_the_model_completes_an_empty_ledger() -> None:
    (step,) = tidying(Conversation([]), calls_per_reply=4)

    assert step["action"] == "complete"
