import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from refine import clock
from refine.errors import ChangedMeanwhile, Refused, RowAltered
from refine.extensions import database_now, db
from refine.models import (
    Agent,
    AgentMemory,
    LeaseLost,
    RefinementSession,
    SessionAlreadyLive,
    SessionEntry,
)
from refine.models.runs.run import LOST_AFTER
from refine.models.runs.session import totals
from tests import editing, factories, sql
from tests.models.cases import case, set_fields

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def agent(app):
    return factories.agent("one")


@pytest.fixture
def session(app):
    """A running session over four memories of 25 tokens: 25 of 100 may go."""
    owner = factories.agent()
    factories.ledger(owner, *[25] * 4)
    return factories.session(owner, at=NOW)


def ids_of(session):
    return [memory.id for memory in db.session.scalars(session.agent.ledger.core())]


def ended(owner, status="completed", **fields):
    """A session of the past."""
    usual = {"agent": owner, "trigger": "weekly", "model_id": "test/model", "ended_at": clock.now()}
    made = RefinementSession(**{**usual, "threshold": "0.75", "status": status, **fields})
    db.session.add(made)
    db.session.flush()
    return made


def removed(tokens):
    return {"removable_tokens": tokens, "removed_tokens": tokens, "saved_tokens": tokens}


def last_record(session):
    return factories.records(session.agent)[-1]


# -- queueing --------------------------------------------------------------------------------------


def test_a_queued_session_waits_and_is_recorded(app):
    agent = factories.agent(refinement_threshold=0.9)
    user = factories.user()

    session = RefinementSession.queue(agent, "api", user=user, at=NOW)

    (record,) = factories.records(agent)
    assert (session.status, session.trigger, session.user_id) == ("queued", "api", user.id)
    assert (session.model_id, session.threshold) == (agent.model_id, Decimal("0.9"))
    assert (session.created_at, session.lease_token, session.ended_at) == (NOW, None, None)
    assert (record.action, record.session_id) == ("refinement_queued", session.id)
    assert record.user_id == user.id
    assert session.is_live


@pytest.mark.parametrize("forge", ["INSERT", "UPDATE"])
def test_a_session_that_nobody_asked_the_application_for_does_not_start(agent, forge):
    agent.paused = True
    RefinementSession.queue(agent, "manual")
    db.session.commit()
    if forge == "INSERT":
        sql.tamper(
            "DELETE FROM refinement_sessions",
            "INSERT INTO refinement_sessions (id, agent_id, trigger, model_id, threshold) "
            f"VALUES (gen_random_uuid(), {agent.id}, 'manual', 'm', 0.5)",
        )
    else:
        sql.run("UPDATE refinement_sessions SET removed_tokens = 9, removable_tokens = 9")
    db.session.expire_all()
    forged = db.session.scalars(select(RefinementSession)).one()

    for start in (forged.claim, forged.request_stop):
        with pytest.raises(RowAltered):
            start()
        db.session.rollback()

    assert forged.status == "queued"


def test_a_second_session_is_refused_while_the_first_is_live(agent):
    live = RefinementSession.queue(agent, "manual")
    RefinementSession.start(factories.agent())

    for _ in ("queued", "running"):
        with pytest.raises(SessionAlreadyLive, match=str(live.id)) as refusal:
            RefinementSession.start(agent)
        assert refusal.value.session_id == live.id
        live.claim()

    live.finish("incomplete", "a test")
    assert RefinementSession.start(agent).id != live.id


def test_an_agent_that_is_inactive_or_erased_has_no_session_queued_or_claimed(agent, subtests):
    for reason, change in {
        "the agent is not active": lambda: setattr(agent, "active", False),
        "the agent was erased": lambda: factories.erase(agent),
    }.items():
        with case(subtests, reason=reason):
            waiting = RefinementSession.queue(agent, "manual")
            change()
            with pytest.raises(Refused, match=reason):
                RefinementSession.queue(agent, "manual")
            assert waiting.claim() is None
            assert (waiting.status, waiting.end_reason) == ("skipped", reason)


def test_an_agent_paused_or_over_its_cap_has_only_sessions_that_somebody_asked_for(agent, subtests):
    for trigger, is_skipped in [
        ("weekly", True),
        ("over_budget", True),
        ("manual", False),
        ("api", False),
        ("cli", False),
    ]:
        for reason, row, fields in [
            ("the agent is paused", agent, {"paused": True}),
            ("its account is paused", agent.account, {"paused": True}),
            ("monthly cost cap of $0", agent.account, {"monthly_cost_cap_usd": Decimal(0)}),
        ]:
            with case(subtests, trigger=trigger, reason=reason):
                set_fields(row, **fields)
                session = RefinementSession.queue(agent, trigger)
                assert (session.claim() is None) == is_skipped
                assert (reason in str(session.end_reason)) == is_skipped


def test_queueing_ends_a_session_whose_worker_was_lost(agent):
    lost = RefinementSession.queue(agent, "manual", at=NOW)
    lost.claim(NOW)
    factories.fall_silent(lost)

    session = RefinementSession.queue(agent, "manual", at=NOW + MINUTE)

    assert (lost.status, lost.error_kind) == ("failed", "worker_lost")
    assert session.is_live


def test_an_agent_has_one_session_for_each_slot_and_attempt(agent):
    RefinementSession.queue(agent, "weekly", slot_at=NOW).finish("failed", "a test")
    RefinementSession.queue(agent, "weekly", slot_at=NOW, attempt=2).finish("failed", "a test")

    with pytest.raises(IntegrityError, match="slot_at"):
        RefinementSession.queue(agent, "weekly", slot_at=NOW, attempt=2)


# -- claiming --------------------------------------------------------------------------------------


def test_a_queued_session_is_claimed_once_with_the_agents_present_model(agent):
    session = RefinementSession.queue(agent, "manual")
    agent.model_id = "test/another"

    first, second = session.claim(NOW), session.claim()

    assert isinstance(first, uuid.UUID)
    assert second is None
    assert (session.status, session.lease_token) == ("running", first)
    assert session.started_at == NOW
    assert timedelta(0) <= database_now() - session.heartbeat_at < MINUTE
    assert session.model_id == "test/another"


def test_a_session_that_ended_meanwhile_is_not_claimed(agent):
    session = RefinementSession.queue(agent, "manual")
    db.session.commit()
    assert session.status == "queued"
    sql.rewrite("UPDATE refinement_sessions SET status = 'skipped', ended_at = now()")

    assert (session.claim(), session.status) == (None, "skipped")


def test_a_session_that_may_not_start_takes_no_snapshot(agent):
    agent.paused = True

    session = RefinementSession.start(agent, "weekly")

    assert (session.status, session.memories_before) == ("skipped", None)
    assert db.session.scalars(select(SessionEntry)).all() == []


def test_only_the_lease_holds_a_running_session(session, subtests):
    lease = session.lease_token
    assert RefinementSession.held(session.id, lease) is session

    for status, ended_at, stored, given in [
        ("running", None, lease, None),
        ("running", None, lease, uuid.UUID(int=1)),
        ("queued", None, None, None),
        *((end, NOW, None, lease) for end in ("completed", "rolled_back", "incomplete", "failed")),
    ]:
        with case(subtests, status=status, given=given):
            set_fields(session, status=status, ended_at=ended_at, lease_token=stored)
            with pytest.raises(LeaseLost, match=status) as loss:
                RefinementSession.held(session.id, given)
            assert loss.value.status == status


# -- the snapshot ----------------------------------------------------------------------------------


def test_the_snapshot_has_an_entry_for_each_kept_core_memory(app):
    agent = factories.agent()
    memories = factories.ledger(agent, 10, 30)
    factories.ledger(agent, 50, memory_type="journal")
    factories.ledger(agent, 70)[0].discard()

    session = RefinementSession.start(agent)

    entries = db.session.scalars(select(SessionEntry).order_by(SessionEntry.memory_id)).all()
    assert [
        (entry.memory_id, entry.ceiling_tokens, entry.counting_tokens, entry.shown_digest)
        for entry in entries
    ] == [
        (memory.id, memory.token_estimate, memory.token_estimate, memory.state_digest)
        for memory in memories
    ]
    assert (session.memories_before, session.mass_before) == (2, 40)


def test_the_snapshot_of_a_batch_covers_the_entire_ledger_and_shows_the_batch(app):
    agent = factories.agent()
    shown, unseen = factories.ledger(agent, 10, 30)
    session = RefinementSession.queue(agent, "manual")
    session.claim()

    session.take_snapshot({shown.id})

    entries = {entry.memory_id: entry for entry in db.session.scalars(select(SessionEntry))}
    assert entries[shown.id].shown_digest == shown.state_digest
    assert entries[unseen.id].shown_digest is None
    assert session.mass_before == 40
    assert (session.shown_memories, session.memories_before) == (1, 2)


def test_a_session_that_showed_a_part_of_the_ledger_says_so(app):
    session = factories.session(factories.agent("one", "two", "three"))
    shown_in_full = session.part_shown
    session.batch_through_id, session.shown_memories = 17, 2

    said = session.part_shown

    assert (shown_in_full, session.memories_before) == (None, 3)
    assert said.startswith("Of 3 memories, only 2 were shown, because the model's context is too")
    assert "`REFINE_CONTEXT_TOKENS` (now 128,000)" in said


def test_the_snapshot_reads_the_database_and_the_agents_present_threshold(app):
    agent = factories.agent()
    first, second = factories.ledger(agent, 100, 100)
    db.session.commit()
    assert first.token_estimate == second.token_estimate
    with app.app_context():  # another transaction
        db.session.get_one(AgentMemory, first.id).content = factories.text_of(10)
        db.session.commit()
    session = RefinementSession.queue(agent, "manual")
    agent.refinement_threshold = 0.9
    session.claim()

    session.take_snapshot()
    agent.refinement_threshold = 0.1

    assert (session.mass_before, session.threshold) == (110, Decimal("0.9"))


def test_the_threshold_and_recent_removals_fix_how_many_tokens_may_go(app, subtests):
    agent = factories.agent()
    factories.ledger(agent, 60, 40)

    for threshold, recently, removable in [
        (None, 0, 25),
        (0.9, 0, 10),
        (1, 0, 0),
        (0.0001, 0, 50),
        (0.755, 0, 24),
        (None, 50, 25),
        (None, 51, 24),
        (None, 80, 10),
        (None, 100, 0),
        (None, 10_000, 0),
    ]:
        with case(subtests, threshold=threshold, recently=recently):
            agent.refinement_threshold = threshold
            ended(agent, **removed(recently))
            session = RefinementSession.start(agent)
            assert session.removable_tokens == removable
            assert session.threshold == agent.threshold


def test_removals_of_the_last_30_days_add_up(agent):
    now = clock.now()
    ended(agent, "completed", **removed(30))
    ended(agent, "incomplete", **removed(12))
    ended(agent, ended_at=now - timedelta(days=29, hours=23), **removed(5))
    # these do not count
    ended(agent, ended_at=now - timedelta(days=30, seconds=1), **removed(1000))
    ended(agent, undone_at=now, **removed(1000))
    ended(factories.agent(), **removed(1000))

    assert RefinementSession.removed_recently(agent) == 47


def test_an_agent_is_eroded_once_the_floor_leaves_nothing(app, subtests):
    agent = factories.agent()
    factories.ledger(agent, 100)

    now = clock.now()
    long_ago = dict.fromkeys(("created_at", "ended_at"), now - timedelta(days=300))
    eroded = select(Agent.id).where(RefinementSession.is_eroded(now))

    for tokens, fields, is_eroded in [
        (0, {}, False),
        (98, {}, False),
        (99, {}, True),
        (99, long_ago, False),
        (99, {"undone_at": now}, False),
    ]:
        with case(subtests, removed=tokens, **fields):
            ended(agent, **removed(tokens), **fields)
            assert (RefinementSession.erosion_reason(agent) is not None) == is_eroded
            assert db.session.scalars(eroded).all() == [agent.id] * is_eroded


# -- looking back ----------------------------------------------------------------------------------


def test_the_totals_of_a_period_are_those_of_the_accounts_since_it_began(agent):
    mine, day = agent.account_id, NOW.date()
    nothing = totals.by_day(mine, "UTC", NOW)
    for owner, created_at in [
        (agent, NOW),
        (agent, NOW - MOMENT),
        (factories.agent(account=agent.account), NOW),
        (factories.agent(), NOW),
    ]:
        ended(owner, "failed", created_at=created_at, error_kind="worker_lost")
        ended(owner, "failed", created_at=created_at, error_kind="timeout")
        ended(owner, "incomplete", created_at=created_at, error_kind="worker_lost")
        ended(owner, "declined", created_at=created_at)
        ended(owner, created_at=created_at, **removed(7))
        ended(owner, created_at=created_at, undone_at=NOW, **removed(1000))

    assert nothing == []
    assert sorted(totals.by_day(mine, "UTC", NOW)) == [
        (day, "completed", 4, 14, 0),
        (day, "declined", 2, 0, 0),
        (day, "failed", 4, 0, 2),
        (day, "incomplete", 2, 0, 2),
    ]


# -- stopping --------------------------------------------------------------------------------------


def test_stopping_a_queued_session_skips_it_even_if_its_agent_was_erased(agent, subtests):
    for is_erased in (False, True):
        with case(subtests, is_erased=is_erased):
            session = RefinementSession.queue(agent, "manual")
            if is_erased:
                factories.erase(agent)
            session.request_stop(at=NOW)
            record = last_record(session)
            assert (session.status, session.ended_at, session.is_live) == ("skipped", NOW, False)
            assert record.action == "memory_refinement_skipped"
            assert record.data["reason"] == "stopped on the command line while it was queued"
            assert not is_erased or record.sealed == {}


def test_an_ended_session_cannot_be_stopped(session):
    editing.complete(session, "Done.")

    with pytest.raises(Refused, match="has already ended"):
        session.request_stop(at=NOW)


def test_the_first_request_to_stop_a_running_session_counts(session):
    first, second = factories.user(), factories.user()
    assert not session.is_stop_requested
    session.request_stop(first, NOW)

    session.request_stop(second, NOW + MINUTE)

    assert session.is_stop_requested
    assert session.status == "running"
    assert (session.stop_requested_at, session.stop_requested_by_id) == (NOW, first.id)
    assert session.stop_reason == "stopped on request"


@pytest.mark.parametrize(("consented", "status"), [(False, "skipped"), (True, "incomplete")])
def test_a_stopped_session_that_fails_before_it_stops_has_stopped(agent, consented, status):
    boss = factories.user(account=agent.account)
    session = factories.session(agent)
    session.consented_at = session.started_at if consented else None
    session.request_stop(boss)
    factories.fall_silent(session)

    assert session.end_if_lost()

    assert (session.status, session.error_kind) == (status, "worker_lost")
    assert session.end_reason == "stopped on request; the worker was lost"
    assert not session.may_be_retried
    assert factories.records(agent)[-1].user_id == boss.id


def test_a_stopping_worker_ends_only_the_run_that_its_lease_holds(session):
    assert not session.end_if_still_held(uuid.uuid4())
    assert session.is_running

    assert session.end_if_still_held(session.lease_token)
    assert (session.status, session.error_kind) == ("failed", "worker_lost")


def test_a_running_session_is_lost_after_three_missed_beats(session):
    factories.fall_silent(session, LOST_AFTER - timedelta(seconds=10))
    assert not session.end_if_lost()
    factories.fall_silent(session, LOST_AFTER)
    assert session.end_if_lost(NOW)
    assert (session.is_live, session.ended_at) == (False, NOW)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_running_session_is_not_lost_by_a_clock_that_is_wrong(session, hours):
    with time_machine.travel(clock.now() + timedelta(hours=hours)):
        assert not session.end_if_lost()
        assert chosen_as_lost() == []
        again = RefinementSession.queue(factories.agent("another"), "manual")
        again.claim()
        db.session.commit()
    assert not again.end_if_lost()
    assert chosen_as_lost() == []


def chosen_as_lost():
    return db.session.scalars(RefinementSession.select_agents_with_lost()).all()


# -- ending ----------------------------------------------------------------------------------------


def test_completing_writes_measured_figures_before_the_agents_words(session):
    gone, *_ = ids_of(session)
    editing.delete(session, gone)

    editing.complete(session, "  I deleted them all. ", NOW)

    assert session.summary == (
        "Refinement session: 4 → 3 memories, 25 tokens saved (1 deleted). I deleted them all."
    )
    assert (session.status, session.ended_at, session.lease_token) == ("completed", NOW, None)
    assert (session.mass_before, session.mass_after) == (100, 75)
    assert (session.memories_before, session.memories_after) == (4, 3)
    assert session.agent.last_refinement_at == NOW
    assert db.session.get(AgentMemory, gone) is not None


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE refinement_sessions SET removable_tokens = 100, row_digest = ''",
        "DELETE FROM chain_heads WHERE agent_id IS NOT NULL",
    ],
    ids=["the row", "the chain"],
)
def test_a_session_that_was_altered_since_it_was_read_does_not_end(session, tampering):
    db.session.commit()
    session.require_genuine()
    sql.tamper(tampering)

    with pytest.raises((RowAltered, ChangedMeanwhile)):
        session.finish("incomplete", "a test")


def test_the_end_is_recorded_with_open_figures_and_sealed_words(session):
    session.consent_reply = "Yes, canary."

    editing.complete(session, "The canary stays.", NOW)
    db.session.commit()

    record = last_record(session)
    assert (record.action, record.session_id) == ("memory_refinement_complete", session.id)
    assert (record.auditable_type, record.auditable_id) == ("RefinementSession", str(session.id))
    (note,) = record.sealed["memories"]
    assert (note["after"]["content"], len(record.sealed)) == (session.summary, 1)
    assert (
        record.data.items()
        >= {
            "status": "completed",
            "mass_before": 100,
            "mass_after": 100,
            "memories_before": 4,
            "threshold": "0.7500",
            "removable_tokens": 25,
            "removed_tokens": 0,
            "mutation_count": 0,
        }.items()
    )
    stored = " ".join(row for rows in sql.snapshot().values() for row in rows)
    assert "canary" not in stored
    assert b"canary".hex() not in stored


def test_every_end_is_one_record_and_after_its_work_the_agent_is_told(session, subtests):
    before = len(factories.records(session.agent))
    for status, action, worked in [
        ("completed", "complete", True),
        ("incomplete", "incomplete", True),
        ("declined", "declined", False),
        ("skipped", "skipped", False),
        ("failed", "failed", False),
    ]:
        with case(subtests, status=status):
            session.finish(status, "a reason", summary="Fine." if worked else None, at=NOW)
            actions = [record.action for record in factories.records(session.agent)[before:]]
            assert actions == [f"memory_refinement_{action}"]
            assert (session.status, session.ended_at) == (status, NOW)
            assert session.end_reason == "a reason"
            told = factories.journal(session.agent)
            assert len(told) == worked
            assert (session.summary is not None) == worked
            assert (session.agent.last_refinement_at == NOW) == worked
            for memory in told:
                ended_early = "It ended early: a reason" in memory.content
                assert session.summary in memory.content
                assert ended_early == (status == "incomplete")
                assert (memory.session_id, memory.created_at) == (session.id, NOW)


# -- its figures ----------------------------------------------------------------------------------


def test_the_summary_line_tells_what_was_done_and_what_came_of_it(session, subtests):
    session.memories_after = 4
    for fields, told in [
        ({}, "4 → 4 memories, 0 tokens saved (no changes)."),
        ({"saved_tokens": -1}, "4 → 4 memories, 1 token added (no changes)."),
        ({"duplicates_removed": 1}, "5 → 4 memories, 0 tokens saved (1 exact duplicate removed)."),
        (
            {"details_lost": 2, "stats": {"deleted": 3, "retired": 1}},
            "4 → 4 memories, 0 tokens saved (3 deleted, 2 details lost). "
            "Retired as outdated or wrong, and kept apart: 1.",
        ),
        (
            {"status": "rolled_back", "stats": {"deleted": 3, "retired": 1}},
            "4 → 4 memories, 0 tokens saved (3 deleted, all undone).",
        ),
    ]:
        with subtests.test(**fields), db.session.no_autoflush:
            was = {name: getattr(session, name) for name in fields}
            set_fields(session, **fields)
            assert session.summary_line() == f"Refinement session: {told}"
            set_fields(session, **was)


def test_its_figures_tell_what_there_was_before_it_and_would_be_without_it(session):
    with db.session.no_autoflush:
        session.duplicates_removed, session.saved_tokens = 2, 30
        assert (session.memories_at_first, session.mass_without_it) == (6, 130)
        session.memories_before, session.memories_after, session.mass_after = None, 3, 70
        assert (session.memories_at_first, session.mass_without_it) == (5, 100)


def test_what_removed_as_many_tokens_as_duplicates_removed_something(session):
    with db.session.no_autoflush:
        session.removed_tokens = session.duplicates_removed = 2

        assert not session.removed_nothing


def test_the_floor_limits_a_session_that_may_remove_less_than_its_threshold_lets_go(session):
    with db.session.no_autoflush:
        assert not session.is_limited_by_floor

        session.removable_tokens -= 1

        assert session.is_limited_by_floor


def test_its_log_line_tells_milliseconds(session):
    with db.session.no_autoflush:
        session.ended_at = NOW + timedelta(seconds=1, microseconds=234_567)

        assert session.facts()["seconds"] == 1.235


def test_edits_refused_are_counted_by_the_memories_that_they_edit(session):
    with db.session.no_autoflush:
        edits = ([1], [2, 3], [3, 2], [1], [3])

        assert [session.note_refused("sure", ids) for ids in edits] == [1, 1, 2, 2, 1]
        assert session.refused[-1] == {"cause": "sure", "ids": [3], "times": 1}
        assert [each["ids"] for each in session.refused] == [[2, 3], [1], [3]]
        assert session.counted("refused_sure") == 5
