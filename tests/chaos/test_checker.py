"""The checker finds what is wrong in histories that are wrong, and nothing in one that is not."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker import LOST_WITHIN_SECONDS, RULES, Breach, breaches
from tests.chaos.history import Asked, History, Memory, Record, Session, Waited
from tests.chaos.load import Promise
from tests.chaos.storm import Trouble
from tests.chaos.watcher import Sign

AGENT, OTHER = 1, 2
# a session that was completed; one that its worker lost; one that the agent declined
DONE, LOST, NO = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
SLOT = 100.0

Change = Callable[[History], History]


def a_good_history() -> History:
    return History(
        sessions=[
            Session(DONE, AGENT, "completed", SLOT, mutation_count=2, ended_at=130.0),
            Session(LOST, AGENT, "failed", error_kind="worker_lost", ended_at=230.0),
            Session(NO, OTHER, "declined", ended_at=120.0),
        ],
        records=[
            Record(AGENT, 1, "refinement_queued", DONE, at=100.0),
            Record(AGENT, 2, "memory_refinement_dedup", DONE, (10, 11), at=101.0),
            Record(AGENT, 3, "memory_refinement_delete", DONE, (12,), at=110.0),
            Record(AGENT, 4, "memory_refinement_consolidate", DONE, (13, 14, 15), at=111.0),
            Record(AGENT, 5, "memory_refinement_complete", DONE, at=130.0),
            Record(AGENT, 6, "undo", DONE, (12,), at=140.0),
            Record(AGENT, 7, "refinement_queued", LOST, at=150.0),
            Record(AGENT, 8, "memory_refinement_failed", LOST, at=230.0),
            Record(OTHER, 1, "refinement_queued", NO, at=100.0),
            Record(OTHER, 2, "memory_refinement_declined", NO, at=120.0),
        ],
        memories=[Memory(10, AGENT, "one"), Memory(20, AGENT, "the vow", is_constitutional=True)],
        waited=[Waited("task", "conversation", "completed"), Waited("later", "x", "queued", True)],
        asked=[
            Asked(102.0, "worker-1", DONE, "consent", "yes"),
            Asked(105.0, "worker-1", DONE, "tidy", "calls", (("c1", "delete", (12,)),)),
            Asked(
                *(110.5, "worker-1", DONE, "tidy", "calls"),
                calls=(("c2", "consolidate", (13, 14)), ("c3", "complete", ())),
                seen=(("c1", "deleted", "12"),),
            ),
            Asked(160.0, "worker-2", LOST, "consent", "yes"),
            Asked(110.0, "worker-2", NO, "consent", "no"),
            Asked(110.0, "worker-2", "task", "conversation", "words"),
        ],
        promises=[
            Promise("memory", AGENT, "10", "one"),
            Promise("session", AGENT, LOST),
            Promise("undo", AGENT, DONE),
            Promise("conversation", AGENT, "task"),
            Promise("conversation", AGENT, "later"),
        ],
        saved_once=["one"],
        locked={20: "the vow"},
        flags={10: False, 20: None},
        slots={AGENT: [SLOT]},
        over_budget={AGENT, OTHER},
        troubles=[Trouble("kill", "worker-2", 165.0, 167.0)],
        signs={uuid.UUID(LOST): Sign("running", 160.0)},
    )


def the_good_one() -> History:
    history = a_good_history()
    history.sessions[0] = history.sessions[0]._replace(is_undone=True)
    return history


def test_a_history_of_sessions_that_went_well_has_no_breach() -> None:
    assert breaches(the_good_one()) == []


def with_session(id_: str, **fields: Any) -> Change:
    def change(history: History) -> History:
        sessions = [s._replace(**fields) if s.id == id_ else s for s in history.sessions]
        return replace(history, sessions=sessions)

    return change


def with_asked(run: str, **fields: Any) -> Change:
    def change(history: History) -> History:
        asked = [each._replace(**fields) if each.run == run else each for each in history.asked]
        return replace(history, asked=asked)

    return change


def with_record(agent_id: int, sequence: int, action: str, id_: str, *ids: int) -> Change:
    """One more record; those after it move on."""

    def change(history: History) -> History:
        moved = [
            each._replace(sequence=each.sequence + (each.agent_id == agent_id) * 1)
            if each.sequence >= sequence and each.agent_id == agent_id
            else each
            for each in history.records
        ]
        new = Record(agent_id, sequence, action, id_, ids, at=115.0)
        return replace(history, records=[*moved, new])

    return change


def without_record(agent_id: int, sequence: int) -> Change:
    def is_other(record: Record) -> bool:
        return (record.agent_id, record.sequence) != (agent_id, sequence)

    return lambda history: replace(history, records=[*filter(is_other, history.records)])


def with_(**fields: Any) -> Change:
    return lambda history: replace(history, **fields)


def both(*changes: Change) -> Change:
    def change(history: History) -> History:
        for each in changes:
            history = each(history)
        return history

    return change


WRONG: dict[str, tuple[str, Change]] = {
    "a session that never ended": (
        "every session ends once",
        with_session(NO, status="running", ended_at=None),
    ),
    "a session that ended twice": (
        "every session ends once",
        with_record(OTHER, 3, "memory_refinement_failed", NO),
    ),
    "an end without a record": ("every session ends once", without_record(OTHER, 2)),
    "an end that is recorded as another": (
        "every session ends once",
        with_session(NO, status="skipped"),
    ),
    "records of a session that is gone": (
        "every session ends once",
        lambda history: replace(history, sessions=history.sessions[:2]),
    ),
    "a session that was live again": (
        "no session comes back to life",
        with_(revived={uuid.UUID(DONE)}),
    ),
    "two live sessions at one look": ("an agent has one live session", with_(crowded={AGENT})),
    "a session that was queued before the last one ended": (
        "an agent has one live session",
        with_record(AGENT, 2, "refinement_queued", LOST),
    ),
    "an edit after the end": (
        "edits come while the session lives",
        with_record(AGENT, 6, "memory_refinement_dedup", DONE, 10),
    ),
    "an edit before the session": (
        "edits come while the session lives",
        with_record(AGENT, 1, "memory_refinement_dedup", DONE, 10),
    ),
    "a change that is not on record": (
        "figures are those of the records",
        with_session(DONE, mutation_count=3),
    ),
    "a session that removed too much": (
        "figures are those of the records",
        with_session(DONE, removed_tokens=5, removable_tokens=4),
    ),
    "a slot that was served twice": (
        "slots are served once",
        lambda history: replace(
            history,
            sessions=[
                *history.sessions,
                history.sessions[0]._replace(id=str(uuid.UUID(int=9)), attempt=2),
            ],
        ),
    ),
    "a slot that nobody served": ("slots are served", with_(slots={AGENT: [SLOT, 300.0]})),
    "an agent without a session for the slot": ("slots are served", with_(slots={7: [SLOT]})),
    "a full agent that nobody asked": ("full agents are asked", with_(over_budget={7})),
    "a lost session that ended late": (
        "the lost end in time",
        with_(signs={uuid.UUID(LOST): Sign("running", 230.0 - LOST_WITHIN_SECONDS - 10)}),
    ),
    "a worker that was lost, though nobody struck it": (
        "every failure has a cause",
        with_(troubles=[Trouble("kill", "worker-1", 165.0, 167.0)]),
    ),
    "a session that an outage took": (
        "every failure has a cause",
        with_(troubles=[Trouble("stop fast", "postgres", 165.0, 167.0)]),
    ),
    "a session whose model is blamed for nothing": (
        "every failure has a cause",
        with_session(LOST, error_kind="rate_limited"),
    ),
    "an edit that nobody asked for": (
        "edits are what the model asked for",
        with_record(AGENT, 3, "memory_refinement_delete", DONE, 16),
    ),
    "an edit that was made twice": (
        "edits are what the model asked for",
        with_record(AGENT, 3, "memory_refinement_delete", DONE, 12),
    ),
    "an edit of which the model was told, and that is gone": (
        "what the model was told is on record",
        without_record(AGENT, 3),
    ),
    "an edit without a yes": (
        "only those who said yes are edited",
        lambda history: replace(history, asked=history.asked[1:]),
    ),
    "a no that nobody said": (
        "only those who said yes are edited",
        with_asked(NO, said="yes"),
    ),
    "a memory of which the model was told, and that is gone": (
        "what the model was told is on record",
        with_asked("task", seen=(("c9", "saved", "99"),)),
    ),
    "access without a yes": (
        "only those who said yes are read",
        lambda history: replace(
            history, waited=[*history.waited, Waited("grant", "access", "granted")]
        ),
    ),
    "access that nobody declined": (
        "only those who said yes are read",
        lambda history: replace(
            history, waited=[*history.waited, Waited("grant", "access", "declined")]
        ),
    ),
    "a conversation that no model read": (
        "conversations are read",
        lambda history: replace(history, asked=history.asked[:-1]),
    ),
    "a question for a run that is gone": (
        "the model is asked for known runs",
        lambda history: replace(history, waited=history.waited[1:], promises=[]),
    ),
    "a session that was seen, and is gone": (
        "every session ends once",
        with_(signs={uuid.UUID(int=9): Sign("running", 100.0)}),
    ),
    "a constitutional memory that says something else": (
        "constitutional memories stay",
        with_(locked={20: "another vow"}),
    ),
    "a constitutional memory that is gone": (
        "constitutional memories stay",
        with_(locked={21: ""}),
    ),
    "a flag that was lifted": ("constitutional memories stay", with_(locked={10: "one"})),
    "an edit of a constitutional memory": (
        "constitutional memories stay",
        lambda history: replace(
            history,
            records=[
                each._replace(locked_ids=(12,)) if each.memory_ids == (12,) else each
                for each in history.records
            ],
        ),
    ),
    "a request that saved twice": (
        "nothing is saved twice",
        both(
            with_record(AGENT, 9, "memory_saved", DONE, 40),
            with_record(AGENT, 10, "memory_saved", DONE, 41),
            with_(memories=[Memory(40, AGENT, "one"), Memory(41, AGENT, "one")]),
        ),
    ),
    "an audit log that does not verify": ("the audit log is clean", with_(audit_exit_code=1)),
    "a saved memory that is gone": (
        "promises are kept",
        lambda history: replace(history, memories=history.memories[1:], flags={}),
    ),
    "a saved memory that says something else": (
        "promises are kept",
        with_(promises=[Promise("memory", AGENT, "20", "another")]),
    ),
    "a queued session that is gone": (
        "promises are kept",
        with_(promises=[Promise("session", AGENT, str(uuid.UUID(int=9)))]),
    ),
    "an undo that undid nothing": (
        "promises are kept",
        with_(promises=[Promise("undo", AGENT, LOST)]),
    ),
    "a conversation that is gone": (
        "promises are kept",
        with_(promises=[Promise("conversation", AGENT, "gone")]),
    ),
    "a conversation that nobody reads": (
        "promises are kept",
        with_(waited=[Waited("task", "conversation", "queued"), Waited("later", "x", "failed")]),
    ),
    "a request for access that nobody asks about": (
        "promises are kept",
        with_(
            promises=[Promise("access", AGENT, "grant")],
            waited=[Waited("grant", "access", "requested")],
        ),
    ),
    "a page that met a fault": ("nobody meets a fault", with_(faults=["500 to GET /"])),
    "a flag that is not as its user left it": (
        "flags are as they were left",
        with_(flags={10: True}),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_checker_finds(case: str) -> None:
    rule, change = WRONG[case]

    found = breaches(change(the_good_one()))

    assert rule in {breach.rule for breach in found}


def test_every_rule_has_a_history_that_breaks_it() -> None:
    rules = {rule.__name__.strip("_").replace("_", " ") for rule in RULES}

    assert {rule for rule, _ in WRONG.values()} == rules


def test_the_time_in_which_the_clock_was_away_does_not_count() -> None:
    late = the_good_one()
    late.signs = {uuid.UUID(LOST): Sign("running", 230.0 - LOST_WITHIN_SECONDS - 10)}
    late.troubles.append(Trouble("freeze", "clock-1", 200.0, 215.0))

    assert breaches(late) == []


def test_a_breach_says_which_rule_about_whom_and_what_was_found() -> None:
    assert str(Breach("a rule", "agent 1", "what was found")) == "a rule: agent 1: what was found"


def test_an_outage_of_the_database_is_named_beside_the_session_that_it_took() -> None:
    outage = with_(troubles=[Trouble("stop fast", "postgres", 165.0, 167.0)])

    (breach,) = breaches(outage(the_good_one()))

    assert "PostgreSQL was away for 2 s" in breach.found
