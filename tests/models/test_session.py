import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from refine import clock
from refine.errors import InvalidValue, Refused
from refine.extensions import db
from refine.models import (
    AgentMemory,
    LeaseLost,
    RefinementSession,
    SessionAlreadyLive,
    SessionEntry,
)
from refine.models.runs.run import LOST_AFTER
from refine.models.runs.session import editing
from refine.models.runs.session import totals as session_totals
from refine.models.runs.session.duplicates import remove_duplicates
from tests import factories, sql

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def ended(owner, status="completed", **fields):
    """A session of the past."""
    usual = {"agent": owner, "trigger": "weekly", "model_id": "test/model", "ended_at": clock.now()}
    made = RefinementSession(**{**usual, "threshold": "0.75", "status": status, **fields})
    db.session.add(made)
    db.session.flush()
    return made


def journal(owner):
    return factories.journal(owner)


# -- beginning -------------------------------------------------------------------------------------


def test_a_queued_session_waits_and_is_recorded(app):
    agent = factories.agent(refinement_threshold=0.9)
    user = factories.user()

    session = RefinementSession.queue(agent, "api", user=user, at=NOW)

    (record,) = factories.records(agent)
    assert (session.status, session.trigger, session.user_id) == ("queued", "api", user.id)
    assert (session.model_id, session.threshold) == (agent.model_id, Decimal("0.9"))
    assert (session.created_at, session.lease_token, session.ended_at) == (NOW, None, None)
    assert (record.action, record.session_id, record.user_id) == (
        "refinement_queued",
        session.id,
        user.id,
    )
    assert session.is_live


@pytest.mark.parametrize("state", ["queued", "running"])
def test_asking_again_names_the_live_session(app, state):
    agent = factories.agent("one")
    live = RefinementSession.queue(agent, "manual")
    if state == "running":
        live.claim()

    with pytest.raises(SessionAlreadyLive, match=str(live.id)) as refusal:
        RefinementSession.start(agent)

    assert refusal.value.session_id == live.id


def test_an_agent_may_have_another_session_after_the_end_of_one(app):
    agent = factories.agent("one")
    first = RefinementSession.start(agent)
    first.finish("incomplete", "a test")

    second = RefinementSession.start(agent)

    assert second.id != first.id


def test_two_agents_may_have_a_live_session_each(app):
    sessions = [RefinementSession.start(factories.agent("one")) for _ in range(2)]

    assert [session.status for session in sessions] == ["running", "running"]


def test_an_inactive_agent_has_no_session(app):
    agent = factories.agent("one", name="Ada", active=False)

    with pytest.raises(Refused, match="the agent is not active"):
        RefinementSession.queue(agent, "manual")


def test_an_erased_agent_has_no_session(app):
    owner = factories.agent("one", name="Ada")
    factories.erase(owner)

    with pytest.raises(Refused, match="the agent was erased"):
        RefinementSession.queue(owner, "manual")


def test_a_session_of_an_agent_that_was_erased_while_it_waited_is_skipped(app):
    session = RefinementSession.queue(factories.agent("one"), "manual")
    factories.erase(session.agent)

    assert session.claim() is None
    assert (session.status, session.end_reason) == ("skipped", "the agent was erased")


def test_a_paused_agent_may_have_one(app):
    agent = factories.agent("one", paused=True)

    assert RefinementSession.queue(agent, "manual").is_live


def test_asking_ends_a_session_whose_worker_was_lost(app):
    agent = factories.agent("one")
    lost = RefinementSession.queue(agent, "manual", at=NOW)
    lost.claim(NOW)

    session = RefinementSession.queue(agent, "manual", at=NOW + LOST_AFTER + timedelta(seconds=1))

    assert (lost.status, lost.error_kind) == ("failed", "worker_lost")
    assert session.is_live


def test_a_queued_session_is_claimed_once(app):
    session = RefinementSession.queue(factories.agent("one"), "manual")

    first, second = session.claim(NOW), session.claim()

    assert isinstance(first, uuid.UUID)
    assert second is None
    assert (session.status, session.lease_token) == ("running", first)
    assert (session.started_at, session.heartbeat_at) == (NOW, NOW)


def test_a_claim_of_a_worker_whose_copy_is_old_changes_nothing(app):
    session = RefinementSession.queue(factories.agent("one"), "manual")
    db.session.commit()
    assert session.status == "queued"
    sql.run("UPDATE refinement_sessions SET status = 'skipped', ended_at = now()")

    lease = session.claim()

    assert (lease, session.status) == (None, "skipped")


def test_a_started_session_runs_with_its_snapshot_and_leaves_the_commit_to_its_caller(app):
    agent = factories.agent("one")
    db.session.commit()

    session = RefinementSession.start(agent)

    assert (session.status, session.trigger, session.memories_before) == ("running", "manual", 1)
    assert sql.value("SELECT count(*) FROM refinement_sessions") == 0


# -- the lease -------------------------------------------------------------------------------------


def test_who_has_the_lease_holds_the_session(app):
    session = factories.session()

    assert RefinementSession.held(session.id, session.lease_token) is session


@pytest.mark.parametrize("lease", [None, uuid.UUID(int=1)])
def test_who_has_another_lease_holds_nothing(app, lease):
    session = factories.session()

    with pytest.raises(LeaseLost) as loss:
        RefinementSession.held(session.id, lease)

    assert loss.value.status == "running"


@pytest.mark.parametrize("status", ["completed", "rolled_back", "incomplete", "failed"])
def test_nobody_holds_a_session_that_ended(app, status):
    session = factories.session()
    lease = session.lease_token
    sql.run(
        f"UPDATE refinement_sessions SET status = '{status}', lease_token = NULL, ended_at = now()"
    )

    with pytest.raises(LeaseLost, match=status):
        RefinementSession.held(session.id, lease)


def test_a_queued_session_is_held_by_nobody(app):
    session = RefinementSession.queue(factories.agent("one"), "manual")

    with pytest.raises(LeaseLost, match="queued"):
        RefinementSession.held(session.id, None)


# -- duplicates ------------------------------------------------------------------------------------


def dedup(owner):
    session = RefinementSession.queue(owner, "manual")
    removed = remove_duplicates(session, NOW)
    db.session.commit()
    return session, removed


def test_of_exact_duplicates_the_oldest_stays_and_takes_the_tags(app):
    agent = factories.agent()
    young = factories.memory(agent, "same", tags=["relational"])
    old = factories.memory(agent, " SAME ", created_at=NOW)
    middle = factories.memory(agent, "Same", created_at=NOW + timedelta(days=1))
    other = factories.memory(agent, "another")

    session, removed = dedup(agent)

    assert removed == session.duplicates_removed == 2
    assert [memory.discarded for memory in (young, old, middle, other)] == [
        True,
        False,
        True,
        False,
    ]
    assert (old.tags, old.content) == (["relational"], "SAME")


def test_duplicates_of_one_date_leave_the_first_of_them(app):
    agent = factories.agent()
    first, second = (factories.memory(agent, "same", created_at=NOW) for _ in range(2))

    dedup(agent)

    assert (first.discarded, second.discarded) == (False, True)


def test_every_locked_duplicate_stays_and_the_others_go(app):
    agent = factories.agent()
    plain = factories.memory(agent, "same", tags=["relational"], created_at=NOW)
    constitutional = factories.memory(agent, "same", constitutional=True)
    voice = factories.memory(agent, "same", tags=["voice"])

    _, removed = dedup(agent)

    assert removed == 1
    assert [memory.discarded for memory in (plain, constitutional, voice)] == [True, False, False]
    assert (constitutional.tags, voice.tags) == (["relational"], ["voice"])


@pytest.mark.parametrize("fields", [{"memory_type": "journal"}, {"discarded_at": NOW}])
def test_only_kept_core_memories_are_duplicates(app, fields):
    agent = factories.agent("same")
    other = factories.memory(agent, "same", **fields)
    was = other.image()

    _, removed = dedup(agent)

    assert removed == 0
    assert other.image() == was


def test_each_duplicate_that_goes_is_a_record(app):
    agent = factories.agent("same", "same", "same")

    session, _ = dedup(agent)

    kept = db.session.scalars(agent.ledger.core()).one()
    records = [
        record for record in factories.records(agent) if record.action == "memory_refinement_dedup"
    ]
    assert [record.session_id for record in records] == [session.id] * 2
    assert {record.data["duplicate_of"] for record in records} == {kept.id}
    assert [record.data["mass_after"] for record in records] == [2, 1]
    assert [entry["id"] for entry in records[0].data["memories"]] == [int(records[0].auditable_id)]


def test_the_record_of_a_duplicate_holds_the_survivor_where_it_took_tags(app):
    agent = factories.agent()
    kept = factories.memory(agent, "same")
    gone = factories.memory(agent, "same", tags=["relational"])

    dedup(agent)

    (record,) = [
        record for record in factories.records(agent) if record.action == "memory_refinement_dedup"
    ]
    assert [entry["id"] for entry in record.data["memories"]] == [gone.id, kept.id]


def test_duplicates_count_for_nothing_that_a_session_may_remove(app):
    agent = factories.agent("same", "same")

    session, _ = dedup(agent)

    assert (session.mutation_count, session.removed_tokens) == (0, 0)
    assert session.stats == {"consolidated": 0, "updated": 0, "deleted": 0, "protected": 0}


# -- the snapshot ----------------------------------------------------------------------------------


def test_the_snapshot_holds_an_entry_for_each_memory_of_the_ledger(app):
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


def test_a_snapshot_of_a_batch_covers_the_whole_ledger_and_shows_the_batch(app):
    agent = factories.agent()
    shown, unseen = factories.ledger(agent, 10, 30)
    session = RefinementSession.queue(agent, "manual")
    session.claim()

    session.take_snapshot({shown.id})

    entries = {entry.memory_id: entry for entry in db.session.scalars(select(SessionEntry))}
    assert entries[shown.id].shown_digest == shown.state_digest
    assert entries[unseen.id].shown_digest is None
    assert session.mass_before == 40


@pytest.mark.parametrize(
    ("threshold", "removable"), [(None, 25), (0.9, 10), (1, 0), (0.0001, 50), (0.755, 24)]
)
def test_the_snapshot_fixes_how_many_tokens_may_go(app, threshold, removable):
    agent = factories.agent(refinement_threshold=threshold)
    factories.ledger(agent, 60, 40)

    session = RefinementSession.start(agent)

    assert session.removable_tokens == removable
    assert session.threshold == agent.threshold


def test_the_threshold_is_the_one_that_the_agent_has_at_the_snapshot(app):
    agent = factories.agent("one")
    session = RefinementSession.queue(agent, "manual")
    agent.refinement_threshold = 0.9
    session.claim()

    session.take_snapshot()
    agent.refinement_threshold = 0.1

    assert session.threshold == Decimal("0.9")


def test_an_empty_ledger_has_an_empty_snapshot(app):
    session = RefinementSession.start(factories.agent())

    assert (session.memories_before, session.mass_before, session.removable_tokens) == (0, 0, 0)


@pytest.mark.parametrize(
    ("removed", "removable"), [(0, 25), (50, 25), (51, 24), (80, 10), (100, 0), (10_000, 0)]
)
def test_what_loops_removed_recently_lowers_what_may_go(app, removed, removable):
    agent = factories.agent()
    factories.ledger(agent, 100)
    ended(agent, removable_tokens=removed, removed_tokens=removed)

    session = RefinementSession.start(agent)

    assert session.removable_tokens == removable


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_removals_of_several_loops_add_up(app, status):
    agent = factories.agent()
    for removed in (30, 12):
        ended(agent, status, removable_tokens=removed, removed_tokens=removed)

    assert RefinementSession.removed_recently(agent) == 42


@pytest.mark.parametrize(
    "fields",
    [
        {"ended_at": clock.now() - timedelta(days=30, seconds=1)},
        {"undone_at": clock.now()},
        {"agent": "another"},
    ],
)
def test_older_undone_and_other_agents_removals_do_not_count(app, fields):
    agent = factories.agent()
    if "agent" in fields:
        fields = {"agent": factories.agent()}
    ended(agent, **{"removable_tokens": 40, "removed_tokens": 40, **fields})

    assert RefinementSession.removed_recently(agent) == 0


def test_removals_of_almost_30_days_ago_count(app):
    agent = factories.agent()
    at = clock.now() - timedelta(days=29, hours=23)
    ended(agent, ended_at=at, removable_tokens=40, removed_tokens=40)

    assert RefinementSession.removed_recently(agent) == 40


@pytest.mark.parametrize(("removed", "is_eroded"), [(0, False), (98, False), (99, True)])
def test_an_agent_is_eroded_where_the_floor_leaves_nothing(app, removed, is_eroded):
    agent = factories.agent()
    factories.ledger(agent, 100)
    ended(agent, removable_tokens=removed, removed_tokens=removed)

    assert RefinementSession.is_eroded(agent) == is_eroded


# -- looking back ----------------------------------------------------------------------------------


def test_the_last_session_is_the_youngest_that_ran_its_loop(app):
    agent = factories.agent()
    for days, status in enumerate(["declined", "incomplete", "completed", "rolled_back"]):
        ended(agent, status, created_at=NOW - timedelta(days=days))
    ended(factories.agent(), created_at=NOW)

    last = RefinementSession.last_of(agent, before=NOW)
    earlier = RefinementSession.last_of(agent, before=last.created_at)

    assert (last.status, earlier.status) == ("incomplete", "completed")


def test_an_agent_that_never_ran_a_loop_has_no_last_session(app):
    agent = factories.agent()
    ended(agent, "failed")

    assert RefinementSession.last_of(agent, before=NOW) is None


def test_outcomes_count_the_sessions_of_the_last_30_days(app):
    agent = factories.agent()
    for status, days in [("failed", 1), ("failed", 29), ("completed", 2), ("completed", 31)]:
        ended(agent, status, created_at=NOW - timedelta(days=days))

    assert session_totals.outcomes(NOW) == {"failed": 2, "completed": 1}


# -- stopping --------------------------------------------------------------------------------------


def test_stopping_a_queued_session_skips_it(app):
    session = RefinementSession.queue(factories.agent("one"), "manual")

    session.request_stop(at=NOW)

    record = factories.records(session.agent)[-1]
    assert (session.status, session.ended_at, session.is_live) == ("skipped", NOW, False)
    assert (record.action, record.data["reason"]) == (
        "memory_refinement_skipped",
        "stopped while it was queued",
    )


def test_a_running_session_is_asked_to_stop_and_goes_on_until_its_next_step(app):
    session, user = factories.session(), factories.user()
    assert not session.is_stopping

    session.request_stop(user, NOW)

    assert session.is_stopping
    assert (session.status, session.stop_requested_at, session.stop_requested_by_id) == (
        "running",
        NOW,
        user.id,
    )


def test_the_first_request_to_stop_is_the_one_that_counts(app):
    session, first, second = factories.session(), factories.user(), factories.user()
    session.request_stop(first, NOW)

    session.request_stop(second, NOW + timedelta(minutes=1))

    assert (session.stop_requested_at, session.stop_requested_by_id) == (NOW, first.id)


def test_a_session_that_ended_cannot_be_stopped(app):
    session = factories.session()
    editing.complete(session, "done")

    with pytest.raises(Refused, match="completed"):
        session.request_stop()


@pytest.mark.parametrize(
    ("silence", "is_lost"),
    [(LOST_AFTER, False), (LOST_AFTER + timedelta(microseconds=1), True)],
)
def test_a_session_is_lost_after_three_missed_beats(app, silence, is_lost):
    session = factories.session(at=NOW)

    lost = session.end_if_lost(NOW + silence)

    assert (lost, session.is_live) == (is_lost, not is_lost)


def test_a_session_that_waits_in_the_queue_is_not_lost(app):
    session = RefinementSession.queue(factories.agent("one"), "manual", at=NOW)

    assert not session.end_if_lost(NOW + timedelta(days=3))


@pytest.mark.parametrize(("edits", "status"), [(0, "failed"), (1, "incomplete")])
def test_a_lost_session_failed_or_is_incomplete_where_something_was_changed(app, edits, status):
    session = factories.session(at=NOW)
    for memory in db.session.scalars(session.agent.ledger.core().limit(edits)).all():
        editing.delete(session, memory.id)

    session.end_if_lost(NOW + timedelta(minutes=5))

    assert (session.status, session.error_kind) == (status, "worker_lost")
    assert session.removed_tokens == 25 * edits
    assert factories.records(session.agent)[-1].action == f"memory_refinement_{status}"


def test_a_queued_session_of_an_erased_agent_can_be_stopped(app):
    session = RefinementSession.queue(factories.agent("one"), "manual")
    factories.erase(session.agent)

    session.request_stop()

    assert (session.status, factories.records(session.agent)[-1].sealed) == ("skipped", {})


# -- ending ----------------------------------------------------------------------------------------


def test_completing_writes_measured_figures_before_the_agents_words(app):
    agent = factories.agent()
    gone, *_ = factories.ledger(agent, *([100] + [25] * 99))
    session = factories.session(agent)
    editing.delete(session, gone.id)

    editing.complete(session, "  I deleted them all. ", NOW)

    assert session.summary == (
        "Refinement session: 100 → 99 memories, 100 tokens saved (1 deleted). I deleted them all."
    )
    assert (session.status, session.ended_at, session.lease_token) == ("completed", NOW, None)
    assert (session.mass_before, session.mass_after) == (2575, 2475)
    assert (session.memories_before, session.memories_after) == (100, 99)
    assert agent.last_refinement_at == NOW


def test_a_session_without_changes_says_so(app):
    session = factories.session()

    editing.complete(session, "All is well.")

    assert session.summary == (
        "Refinement session: 20 → 20 memories, 0 tokens saved (no changes). All is well."
    )


def test_a_ledger_that_grew_has_tokens_added(app):
    session = factories.session()
    factories.ledger(session.agent, 7)

    editing.complete(session, "All is well.")

    assert "20 → 21 memories, 7 tokens added (no changes)" in session.summary


def test_every_figure_that_is_not_0_is_told(app):
    session = factories.session()
    ids = [memory.id for memory in db.session.scalars(session.agent.ledger.core())]
    editing.consolidate(session, ids[:2], factories.text_of(50))
    editing.update(session, ids[3], factories.text_of(24))
    editing.protect(session, ids[4])

    editing.complete(session, "Done.")

    for figure in ("2 consolidated", "1 updated", "1 protected"):
        assert figure in session.summary
    assert "deleted" not in session.summary


def test_the_end_is_recorded_with_figures_open_and_words_sealed(app):
    session = factories.session()
    session.consent_reply = "Yes, canary."

    editing.complete(session, "The canary stays.", NOW)

    record = factories.records(session.agent)[-1]
    assert (record.action, record.session_id) == ("memory_refinement_complete", session.id)
    assert (record.auditable_type, record.auditable_id) == ("RefinementSession", str(session.id))
    assert "canary" not in str(record.data)
    assert record.sealed["consent_reply"] == "Yes, canary."
    assert record.sealed["summary"] == session.summary
    for figure, value in {
        "status": "completed",
        "mass_before": 500,
        "mass_after": 500,
        "memories_before": 20,
        "threshold": "0.7500",
        "removable_tokens": 125,
        "removed_tokens": 0,
        "mutation_count": 0,
    }.items():
        assert record.data[figure] == value, figure


@pytest.mark.parametrize("summary", ["", "  ", "x" * 2_001, "\x00", None])
def test_a_summary_has_1_to_2000_characters(app, summary):
    session = factories.session()

    with pytest.raises(InvalidValue, match="summary"):
        editing.complete(session, summary)

    assert session.status == "running"


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_after_a_loop_the_agent_is_told_and_its_time_is_noted(app, status):
    session = factories.session()

    session.finish(status, "a limit on turns was reached", summary="Fine.", at=NOW)

    (memory,) = journal(session.agent)
    assert session.summary in memory.content
    assert ("It ended early: a limit on turns" in memory.content) == (status == "incomplete")
    assert (memory.session_id, memory.created_at) == (session.id, NOW)
    assert session.agent.last_refinement_at == NOW


@pytest.mark.parametrize("status", ["declined", "skipped", "failed"])
def test_without_a_loop_the_agent_is_not_told_and_no_time_is_noted(app, status):
    session = factories.session()

    session.finish(status, "a reason", at=NOW)

    assert journal(session.agent) == []
    assert session.agent.last_refinement_at is None
    assert (session.status, session.ended_at, session.end_reason) == (status, NOW, "a reason")
    assert factories.records(session.agent)[-1].action == f"memory_refinement_{status}"
    assert session.summary is None


@pytest.mark.parametrize(
    ("status", "action"),
    [
        ("completed", "complete"),
        ("incomplete", "incomplete"),
        ("declined", "declined"),
        ("failed", "failed"),
    ],
)
def test_every_end_is_one_record(app, status, action):
    session = factories.session()
    before = len(factories.records(session.agent))

    session.finish(status, "a reason")

    actions = [record.action for record in factories.records(session.agent)[before:]]
    assert actions == [f"memory_refinement_{action}"]


def test_summary_and_consent_reply_are_sealed_at_rest(app):
    session = factories.session()
    session.consent_reply = "Yes, c4n4ry."
    editing.complete(session, "The c4n4ry stays.")
    db.session.commit()

    stored = " ".join(row for rows in sql.snapshot().values() for row in rows)

    assert "c4n4ry" not in stored
    assert b"c4n4ry".hex() not in stored


def test_the_memories_of_a_session_name_it(app):
    session = factories.session()
    ids = [memory.id for memory in db.session.scalars(session.agent.ledger.core().limit(2))]

    merged = editing.consolidate(session, ids, factories.text_of(50))

    assert merged.session_id == session.id
    assert merged.recorded_at > NOW


def test_one_agent_has_one_session_for_a_slot_and_attempt(app):
    agent = factories.agent("one")
    RefinementSession.queue(agent, "weekly", slot_at=NOW).finish("failed", "a test")
    RefinementSession.queue(agent, "weekly", slot_at=NOW, attempt=2).finish("failed", "a test")

    with pytest.raises(IntegrityError, match="slot_at"):
        RefinementSession.queue(agent, "weekly", slot_at=NOW, attempt=2)


def test_no_memory_is_ever_deleted_by_a_session(app):
    session = factories.session()
    ids = set(db.session.scalars(select(AgentMemory.id)))
    editing.delete(session, min(ids))
    editing.complete(session, "Done.")

    assert ids < set(db.session.scalars(select(AgentMemory.id)))


def test_a_session_asks_the_model_that_its_agent_has_when_it_begins(app):
    agent = factories.agent("a memory")
    session = RefinementSession.queue(agent, "manual")
    agent.model_id = "test/another"

    session.claim()

    assert session.model_id == "test/another"


@pytest.mark.parametrize(
    ("trigger", "change", "reason"),
    [
        ("manual", {"active": False}, "the agent is not active"),
        ("weekly", {"active": False}, "the agent is not active"),
        ("weekly", {"paused": True}, "the agent is paused"),
        ("over_budget", {"paused": True}, "the agent is paused"),
    ],
)
def test_what_was_switched_off_meanwhile_is_not_begun(app, trigger, change, reason):
    agent = factories.agent("a memory")
    session = RefinementSession.queue(agent, trigger)
    for name, value in change.items():
        setattr(agent, name, value)

    lease_token = session.claim()

    assert lease_token is None
    assert (session.status, session.end_reason) == ("skipped", reason)


@pytest.mark.parametrize("trigger", ["manual", "api", "cli"])
def test_a_session_asked_for_by_hand_begins_for_a_paused_agent_too(app, trigger):
    session = RefinementSession.queue(factories.agent("a memory", paused=True), trigger)

    assert session.claim() is not None


def test_the_snapshot_is_of_what_stands_in_the_database_not_of_what_was_read_before(app):
    agent = factories.agent()
    memories = factories.ledger(agent, 100, 100)
    db.session.commit()
    held = [(memory.id, memory.token_estimate) for memory in memories]
    sql.run(f"UPDATE agent_memories SET token_estimate = 10 WHERE id = {held[0][0]}")

    session = RefinementSession.start(agent)

    assert session.mass_before == 110
