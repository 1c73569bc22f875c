"""Memory tasks: queueing, claiming, keeping, ending, and who is due."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from flask import Flask
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError

from refine import clock
from refine.errors import InvalidValue, Refused, TooMany
from refine.extensions import db
from refine.models import Agent, AgentMemory, MemoryTask, ReflectionAlreadyLive
from refine.models.agent import configuring
from refine.models.runs import task as tasks
from refine.models.runs.task import (
    ENDED,
    MAX_WAITING,
    due_for_reflection,
    given_up_since,
    waiting_of,
)
from tests import factories, sql
from tests.models.cases import case

NIGHT = datetime(2026, 3, 10, 3, tzinfo=UTC)
DAY, HOUR, MOMENT = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent("a core memory")


def running(task: MemoryTask) -> MemoryTask:
    assert task.claim() is not None
    return task


def reflection(agent: Agent) -> MemoryTask:
    return running(MemoryTask.reflect(agent, "daily"))


# -- queueing -------------------------------------------------------------------------------------


def test_a_conversation_is_kept_sealed(agent):
    task = factories.extraction(agent, "the canary sings")

    assert (task.kind, task.status, task.trigger) == ("extraction", "queued", "api")
    assert task.messages() == [{"role": "user", "content": "the canary sings"}]
    assert b"canary" not in (task.sealed_conversation or b"canary")


def test_at_most_a_hundred_conversations_of_an_agent_wait(agent):
    db.session.add_all(
        MemoryTask(agent=agent, kind="extraction", trigger="api", conversation="[]")
        for _ in range(MAX_WAITING - 1)
    )
    factories.extraction(agent)

    with pytest.raises(TooMany, match="100 conversations of .* are waiting already") as refusal:
        factories.extraction(agent)

    assert refusal.value.retry_after_seconds == 600


def test_an_agent_has_at_most_one_live_reflection(agent):
    factories.extraction(agent, at=clock.now() - HOUR)
    task = MemoryTask.reflect(agent, "daily")

    with pytest.raises(ReflectionAlreadyLive, match=str(task.id)):
        MemoryTask.reflect(agent, "cli")


def test_a_lost_reflection_ends_when_another_is_queued(agent):
    lost = running(MemoryTask.reflect(agent, "cli"))
    factories.fall_silent(lost)

    assert (MemoryTask.reflect(agent, "cli").status, lost.status) == ("queued", "failed")


def test_the_database_refuses_to_keep_the_conversation_of_an_ended_task(agent):
    task = factories.extraction(agent)
    db.session.commit()

    with pytest.raises(IntegrityError, match="ck_memory_tasks_conversation"):
        sql.run(
            f"UPDATE memory_tasks SET status = 'failed', ended_at = now() WHERE id = '{task.id}'"
        )


# -- claiming -------------------------------------------------------------------------------------


def test_a_task_is_claimed_once_with_the_agents_present_model(agent):
    task = factories.extraction(agent)
    agent.model_id = "new/model"

    first, second = task.claim(), task.claim()

    assert first == task.lease_token
    assert second is None
    assert (task.status, task.model_id) == ("running", "new/model")

    later = factories.extraction(factories.agent())
    later.due_at = clock.now() + HOUR
    assert (later.claim(), later.status) == (None, "queued")


def test_two_tasks_of_an_agent_never_run_at_once(agent):
    running(factories.extraction(agent))
    second = factories.extraction(agent)

    assert (second.claim(), second.status) == (None, "queued")


REASONS = {
    "the agent is not active": lambda agent: setattr(agent, "active", False),
    "the agent is paused": lambda agent: setattr(agent, "paused", True),
    "its account is paused": lambda agent: setattr(agent.account, "paused", True),
    "the account's monthly cost cap of $0.00 is reached": lambda agent: setattr(
        agent.account, "monthly_cost_cap_usd", Decimal("0.00")
    ),
}


def test_an_unavailable_agent_skips_its_reflection_and_puts_off_its_conversation(agent, subtests):
    daily, conversation = MemoryTask.reflect(agent, "daily"), factories.extraction(agent)
    for reason, change in REASONS.items():
        with case(subtests, reason=reason):
            change(agent)
            assert daily.claim() is None
            assert conversation.claim() is None
            assert (daily.status, daily.end_reason) == ("skipped", reason)
            assert conversation.status == "queued"
            assert conversation.messages()
            assert conversation.due_at > clock.now() + HOUR - MOMENT


# -- promoting ------------------------------------------------------------------------------------


def test_a_promotion_changes_only_the_type(agent):
    entry = factories.entry(agent, "the canary sang", tags=["voice"])
    before = entry.image()

    assert tasks.promote(reflection(agent), [entry.id]) == ([entry.id], {})

    assert entry.image() == {**before, "memory_type": "core"}
    record = factories.records(agent)[-1]
    assert (record.action, record.data["operation"]) == ("memory_promoted", "promote")
    assert record.data["mass_after"] == agent.core_token_usage


def test_an_entry_repeats_a_core_memory_with_its_text_and_all_of_its_tags(agent):
    core = factories.memory(agent, "the canary sang", tags=["voice"])
    ids = [
        factories.entry(agent, "the canary sang", tags=tags).id
        for tags in ([], ["voice"], ["voice", "relational"])
    ]

    promoted = tasks.promote(reflection(agent), ids)

    assert promoted == ([ids[2]], {ids[0]: core.id, ids[1]: core.id})


def test_only_own_entries_of_the_week_before_the_reflection_can_be_promoted(agent):
    entry = factories.entry(agent)
    core = db.session.scalars(agent.ledger.core()).one()
    foreign = factories.entry(factories.agent())
    week_ago = clock.now() - timedelta(days=7)
    expired = factories.entry(agent, created_at=week_ago)
    discarded = factories.entry(agent)
    discarded.discard()
    note = agent.ledger.add_journal_note("My platform changed my settings: name.")
    session = factories.session(agent)
    of_session = agent.ledger.add_session_note(session.id, "53 → 41", clock.now()).memory_id
    closing = factories.entry(agent, session_id=session.id, source="note")
    task = reflection(agent)
    later = factories.entry(agent, recorded_at=clock.now() + MOMENT)
    others = [core.id, foreign.id, expired.id, discarded.id, later.id, 10**17]
    others += [note.id, of_session, closing.id]

    for id_ in others:
        with pytest.raises(InvalidValue, match=rf"^Memory #{id_} not found: only the journal"):
            tasks.promote(task, [entry.id, id_])
    with pytest.raises(InvalidValue, match=rf"^Memories #{core.id}, #{foreign.id} not found"):
        tasks.promote(task, [core.id, foreign.id])
    locked = factories.entry(agent, constitutional=True, recorded_at=task.started_at)
    with pytest.raises(InvalidValue, match=rf"^Cannot promote constitutional memory #{locked.id};"):
        tasks.promote(task, [entry.id, locked.id])
    assert (entry.memory_type, task.memories_kept) == ("journal", 0)


def test_a_reflection_promotes_at_most_ten_entries(agent):
    ids = [factories.entry(agent).id for _ in range(11)]
    task = reflection(agent)
    tasks.promote(task, ids[:9])

    with pytest.raises(InvalidValue, match="At most 10 memories in one reflection; 1 are left"):
        tasks.promote(task, ids[9:])
    tasks.promote(task, ids[9:10])

    assert task.memories_kept == 10
    assert db.session.get_one(AgentMemory, ids[10]).memory_type == "journal"


# -- ending ---------------------------------------------------------------------------------------


def test_every_end_is_recorded_and_deletes_the_conversation(agent, subtests):
    task = running(factories.extraction(agent, "the canary sings"))
    stored = select(func.count()).where(MemoryTask.sealed_conversation.is_not(None))
    for status in ENDED:
        with case(subtests, status=status):
            task.finish(status, "a reason")  # type: ignore[arg-type]
            db.session.flush()
            assert (task.messages(), task.sealed_conversation) == ([], None)
            assert db.session.scalar(stored) == 0
            assert (task.status, task.lease_token) == (status, None)
            record = factories.records(agent)[-1]
            assert (record.action, record.data["status"]) == ("memory_extraction_ended", status)


def test_a_conversation_is_kept_and_tried_again_for_a_week(agent):
    task = factories.extraction(agent, at=NIGHT)
    pauses = []
    while task.claim(at := task.due_at) is not None:
        task.give_up("the key has no credit left", "out_of_credit", at=at)
        assert task.sealed_conversation is not None
        pauses.append(task.due_at - at)

    assert pauses[:3] == [timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2)]
    assert (pauses, pauses[-1]) == (sorted(pauses), DAY)
    assert NIGHT + 6 * DAY < at - pauses[-1] < NIGHT + 7 * DAY
    assert (task.status, task.error_kind) == ("skipped", "out_of_credit")
    assert task.end_reason == "it waited for 7 days; the last attempt: the key has no credit left"
    assert task.sealed_conversation is None


def test_each_failure_of_a_reflection_is_followed_by_a_longer_pause(agent):
    task = MemoryTask.reflect(agent, "daily", at=NIGHT)
    assert not task.is_waiting_for_retry
    pauses = []
    for _ in range(3):
        assert task.claim(task.due_at) is not None
        began = task.due_at
        task.give_up("the provider failed", "timeout", at=began)
        pauses.append(task.due_at - began)
        assert task.is_waiting_for_retry
    assert task.claim(task.due_at) is not None
    task.give_up("the provider failed", "timeout")

    assert pauses == [timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=2)]
    assert (task.status, task.attempt, task.error_kind) == ("failed", 4, "timeout")


def test_a_reflection_lapses_after_a_day_and_names_the_last_failure(agent):
    task = MemoryTask.reflect(agent, "daily", at=NIGHT)
    task.claim(NIGHT)
    task.give_up("the provider failed", "timeout", at=NIGHT)

    assert not task.end_if_lapsed(NIGHT + DAY - MOMENT)
    assert task.end_if_lapsed(NIGHT + DAY)
    assert not task.end_if_lapsed(NIGHT + DAY)

    said = "it waited for 1 day; the last attempt: the provider failed"
    assert (task.status, task.end_reason) == ("skipped", said)


def test_the_waiting_tasks_of_an_agent_are_its_own_the_oldest_first(agent):
    others = factories.extraction(factories.agent(), at=NIGHT)
    second, first = (factories.extraction(agent, at=NIGHT + hours * HOUR) for hours in (2, 1))

    assert waiting_of(agent) == [first, second]
    assert waiting_of(others.agent) == [others]
    db.session.execute(
        text("SET LOCAL enable_indexscan = off")
    )  # an index would happen to have this order
    waiting = db.session.scalars(MemoryTask.select_waiting(3)).all()
    assert waiting == [others.id, first.id, second.id]


def test_nothing_is_claimed_or_queued_for_an_erased_agent(agent):
    waiting = factories.extraction(agent, at=NIGHT)
    factories.erase(agent)

    assert waiting.claim(NIGHT) is None
    assert (waiting.status, waiting.due_at) == ("queued", NIGHT + HOUR)
    for begin in (lambda: MemoryTask.reflect(agent, "cli"), lambda: factories.extraction(agent)):
        with pytest.raises(Refused, match="was erased, so its model is not asked"):
            begin()


# -- who is due -----------------------------------------------------------------------------------


@pytest.fixture
def reflecting(agent: Agent) -> Agent:
    """An agent that turned it on, with an entry of the evening before."""
    configuring.author(agent, "memory_reflection_prompt", "Keep what rhymes.")
    evening = NIGHT - 6 * HOUR
    factories.entry(agent, "the evening's", created_at=evening, recorded_at=evening)
    return agent


def reflected(agent: Agent) -> MemoryTask:
    """A reflection of this night that read the journal of the week."""
    return factories.ended_task(agent, "reflection", at=NIGHT, slot_at=NIGHT)


def due_reflections(slot_at: datetime = NIGHT, zone: str = "UTC") -> list[int]:
    return list(db.session.scalars(due_for_reflection(zone, slot_at)))


def test_an_agent_that_reflects_daily_is_due_once_for_each_slot(reflecting):
    configuring.author(factories.agent(), "memory_reflection_prompt", "Keep what rhymes.")
    reflected(factories.agent())
    assert due_reflections() == [reflecting.id]

    task = MemoryTask.reflect(reflecting, "daily", slot_at=NIGHT, at=NIGHT)
    assert due_reflections() == []
    task.finish("failed", "it failed")
    assert due_reflections() == []
    assert due_reflections(NIGHT + DAY) == [reflecting.id]


def test_entries_that_a_reflection_read_make_no_other_due(reflecting):
    factories.ended_task(reflecting, at=NIGHT)
    assert due_reflections(NIGHT + DAY) == [reflecting.id]  # a conversation was read, but no entry

    reflected(reflecting)
    assert due_reflections(NIGHT + DAY) == []

    factories.entry(reflecting, created_at=NIGHT + HOUR, recorded_at=NIGHT + HOUR)
    assert due_reflections(NIGHT + DAY) == [reflecting.id]


def test_notes_of_refines_own_are_not_offered_and_make_no_reflection_due(agent):
    configuring.author(agent, "memory_reflection_prompt", "Keep what rhymes.")
    agent.ledger.add_journal_note("My platform changed my settings: name.")

    tomorrow = clock.now() + DAY
    assert due_reflections(tomorrow) == []
    own = factories.entry(agent)
    assert due_reflections(tomorrow) == [agent.id]
    assert list(db.session.scalars(tasks.journal_entries(reflection(agent)))) == [own]


def test_an_agent_without_reflections_or_a_live_one_is_not_due(reflecting, subtests):
    changes: dict[str, Callable[[], object]] = {
        "turned off": lambda: configuring.author(reflecting, "memory_reflection_prompt", None),
        "inactive": lambda: setattr(reflecting, "active", False),
        "paused": lambda: setattr(reflecting, "paused", True),
        "account paused": lambda: setattr(reflecting.account, "paused", True),
        "another zone": lambda: setattr(reflecting.account, "time_zone", "Europe/London"),
        "already live": lambda: MemoryTask.reflect(reflecting, "cli"),
    }
    MemoryTask.reflect(factories.agent(), "cli")
    factories.extraction(reflecting)
    for state, change in changes.items():
        with case(subtests, state=state):
            assert due_reflections() == [reflecting.id]
            change()
            db.session.flush()
            assert due_reflections() == []


def test_conversations_that_were_given_up_unread_are_lost(agent):
    factories.ended_task(agent, status="failed", error_kind="timeout", at=NIGHT)
    assert factories.extraction(agent, at=NIGHT - 7 * DAY).end_if_lapsed(NIGHT)
    factories.ended_task(agent, status="incomplete", error_kind="timeout", at=NIGHT)
    factories.ended_task(agent, status="completed", at=NIGHT)
    factories.ended_task(agent, "reflection", "failed", error_kind="timeout", at=NIGHT)
    db.session.flush()

    found = db.select(db.func.count()).select_from(MemoryTask)
    assert db.session.scalar(found.where(given_up_since(NIGHT - MOMENT))) == 2
    assert db.session.scalar(found.where(given_up_since(NIGHT))) == 0
