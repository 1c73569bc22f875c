"""What a session may remove, and how everything is undone when it goes too far."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from refine.extensions import db
from refine.models import RefinementSession, SessionEntry
from refine.models.runs.session.duplicates import remove_duplicates
from tests import editing, factories, sql
from tests.chains import problems
from tests.factories import text_of
from tests.models.cases import case
from tests.models.runs.session.ledgers import begin, kept, memory, state_of

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)

# -- counting --------------------------------------------------------------------------------------


def test_removing_exactly_the_limit_stands(app):
    session, ids = begin(25, 75)

    editing.delete(session, ids[0])

    assert (session.status, session.removed_tokens, session.removable_tokens) == ("running", 25, 25)
    assert memory(ids[0]).discarded


def test_one_token_more_undoes_everything(app):
    session, ids = begin(24, 2, 74)
    before = state_of(session.agent)
    editing.delete(session, ids[0])

    editing.delete(session, ids[1])

    assert session.removable_tokens == 25
    assert session.status == "rolled_back"
    assert state_of(session.agent) == before
    assert session.removed_tokens == 0
    assert (session.memories_after, session.mass_after) == (3, 100)


def test_a_memory_counts_at_most_its_tokens_at_the_snapshot(app):
    session, ids = begin(100, 100)
    removed = []

    for tokens in (70, 110, 60, 100):
        editing.update(session, ids[0], text_of(tokens))
        removed.append(session.removed_tokens)

    assert removed == [30, 0, 40, 0]


def test_padding_hides_no_deletion(app):
    session, ids = begin(*([10] * 10))
    editing.update(session, ids[9], text_of(18))
    for id_ in ids[:2]:
        editing.delete(session, id_)
    assert session.status == "running"

    editing.delete(session, ids[2])

    assert session.status == "rolled_back"


def test_a_source_of_a_merge_that_was_restored_and_rewritten_gives_no_tokens_back(app):
    session, ids = begin(25, 25, 150)
    editing.consolidate(session, ids[:2], text_of(45))
    memory(ids[0]).restore()
    editing.search(session, None)

    editing.update(session, ids[0], text_of(24))

    assert session.removed_tokens == 5
    editing.complete(session, "Done.")
    assert session.status == "completed"


def test_a_merged_memory_counts_at_most_as_much_as_its_sources(app, subtests):
    session, ids = begin(10, 20, 30, 140)

    for before, merged_tokens, after, removed in [
        (None, 30, None, 0),
        (None, 30, 5, 25),
        (None, 16, None, 14),
        (5, 15, None, 15),
        (None, 30, 0, 30),
    ]:
        with case(subtests, before=before, merged=merged_tokens, after=after):
            if before:
                editing.update(session, ids[1], text_of(before))
            merged = editing.consolidate(session, ids[:2], text_of(merged_tokens))
            if after:
                editing.update(session, merged.id, text_of(after))
            elif after == 0:
                editing.delete(session, merged.id)
            assert session.removed_tokens == removed


def test_a_merge_of_a_merge_counts_at_most_as_much_as_the_first_sources(app):
    session, ids = begin(10, 10, 10, 70)
    first = editing.consolidate(session, ids[:2], text_of(15))
    editing.update(session, first.id, text_of(28))

    editing.consolidate(session, [first.id, ids[2]], text_of(38))

    entries = {entry.memory_id: entry for entry in db.session.scalars(select(SessionEntry))}
    result = entries[max(entries)]
    assert session.removed_tokens == 0
    assert (result.ceiling_tokens, result.counting_tokens) == (30, 30)
    assert entries[first.id].counting_tokens == 0


def test_memories_that_others_save_meanwhile_do_not_make_up_for_a_deletion(app):
    session, ids = begin(30, 70)
    factories.ledger(session.agent, 1000)

    editing.delete(session, ids[0])

    assert session.status == "rolled_back"


def test_memories_that_others_discard_meanwhile_do_not_count(app):
    session, ids = begin(20, 50, 30)
    memory(ids[1]).discard()

    editing.delete(session, ids[0])

    assert (session.status, session.removed_tokens) == ("running", 20)


def test_a_session_of_an_empty_ledger_is_never_rolled_back(app):
    session, _ = begin()
    factories.ledger(session.agent, 10)

    assert not session.is_too_much(1)
    editing.complete(session, "Nothing to do.")

    assert session.status == "completed"


def test_the_breaker_is_checked_again_at_the_end(app):
    session, ids = begin(10, 90)
    editing.delete(session, ids[0])
    db.session.commit()
    sql.run("UPDATE session_entries SET counting_tokens = 0")

    editing.complete(session, "Done.")

    assert session.status == "rolled_back"
    assert not memory(ids[0]).discarded


# -- rolling back ----------------------------------------------------------------------------------


def trip(session, ids):
    """Delete one after the other, until the breaker trips."""
    for id_ in ids:
        if session.status == "running":
            editing.delete(session, id_)
    assert session.status == "rolled_back"


def test_a_rollback_restores_every_kind_of_edit_exactly(app):
    session, ids = begin(*([10] * 10))
    before = state_of(session.agent)
    editing.update(session, ids[0], text_of(11))
    editing.update(session, ids[0], text_of(12))
    editing.protect(session, ids[1])
    first = editing.consolidate(session, ids[2:4], text_of(20))
    second = editing.consolidate(session, [first.id, ids[0]], text_of(30))
    editing.protect(session, second.id)

    trip(session, ids[5:])

    after = state_of(session.agent)
    assert {id_: after[id_] for id_ in ids} == before
    assert set(kept(session.agent)) == set(ids)
    assert after[first.id]["discarded_at"]
    assert after[second.id]["discarded_at"]
    db.session.commit()
    assert problems() == []


@pytest.fixture
def ledger(app):
    """A session over two small memories and two big ones; deleting the big ones trips."""
    return begin(10, 10, 30, 50)


def test_a_rollback_keeps_the_changes_that_others_made_after_an_edit(ledger, subtests):
    session, (id_, other, *big) = ledger
    was = memory(id_).content
    verbs = {
        "update": lambda: editing.update(session, id_, text_of(9)),
        "delete": lambda: editing.delete(session, id_),
        "protect": lambda: editing.protect(session, id_),
        "restore": lambda: memory(id_).restore(),
        "discard": lambda: memory(id_).discard(at=NOW),
        "flag": lambda: memory(id_).set_constitutional(True),
        "unflag": lambda: memory(id_).set_constitutional(False),
    }

    for steps, constitutional, discarded_at in [
        ("flag", True, None),
        ("update flag", True, None),
        ("delete restore", False, None),
        ("delete restore discard", False, NOW),
        ("delete flag", True, None),
        ("update discard", False, NOW),
        ("protect unflag", False, None),
        ("protect unflag flag", True, None),
        # the session's own protection is lifted, an older one stays
        ("protect", False, None),
        ("flag protect", True, None),
    ]:
        with case(subtests, steps=steps):
            for step in steps.split():
                verbs[step]()
            trip(session, big)
            found = memory(id_)
            assert (found.constitutional, found.discarded_at) == (constitutional, discarded_at)
            assert found.content == was
            assert not memory(other).discarded


def test_a_rollback_keeps_what_was_saved_meanwhile_in_the_very_words_of_the_session(ledger):
    session, ids = ledger
    rewritten = f"{memory(ids[0]).content}, as it was"
    merged = f"{memory(ids[1]).content} {memory(ids[2]).content}"[:-8]
    editing.update(session, ids[0], rewritten)
    editing.consolidate(session, ids[1:3], merged)
    saved = [session.agent.ledger.remember(text, "core") for text in (rewritten, merged)]

    trip(session, ids[3:])

    assert [existing for _, existing in saved] == [False, False]
    assert {rewritten, merged} <= {each["content"] for each in kept(session.agent).values()}


def test_duplicates_stay_removed_and_count_as_saved(app):
    agent = factories.agent("same", "same")
    memories = factories.ledger(agent, 50, 50)
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    remove_duplicates(session)
    session.take_snapshot()

    editing.update(session, memories[0].id, text_of(48))
    saved = session.saved_tokens

    trip(session, [each.id for each in memories])

    assert [memory["content"] for memory in kept(agent).values()].count("same") == 1
    assert (saved, session.saved_tokens) == (3, 1)
    assert "4 → 3 memories, 1 token saved (" in session.summary


def test_edits_are_reversed_newest_first_by_sequence_not_by_clock(ledger):
    session, ids = ledger
    was = memory(ids[0]).content
    for n in range(3):
        editing.update(session, ids[0], text_of(10), NOW - timedelta(days=n))

    trip(session, ids[2:])

    assert memory(ids[0]).content == was


def test_a_rollback_reverses_the_edits_of_its_own_session_only(ledger):
    first, ids = ledger
    editing.delete(first, ids[0])
    editing.complete(first, "Done.")
    second = factories.session(first.agent)

    trip(second, ids[2:])

    assert memory(ids[0]).discarded
    assert set(kept(first.agent)) == set(ids[1:])


def test_a_rollback_is_one_record_with_figures(ledger):
    session, ids = ledger
    editing.update(session, ids[0], text_of(9))

    trip(session, ids[2:])

    record = factories.records(session.agent)[-1]
    assert record.action == "memory_refinement_rollback"
    assert [each.action for each in factories.records(session.agent)].count(record.action) == 1
    assert (
        record.data.items()
        >= {
            "mass_before": 100,
            "mass_after": 100,
            "threshold": "0.7500",
            "removable_tokens": 25,
            "attempted_tokens": 31,
            "stats": {"consolidated": 0, "updated": 1, "deleted": 1, "protected": 0},
        }.items()
    )


def test_the_agent_is_told_which_edits_were_undone(ledger):
    session, ids = ledger
    editing.consolidate(session, ids[:2], text_of(20))

    trip(session, ids[2:])

    (told,) = factories.journal(session.agent)
    assert f"consolidate #{ids[0]}, #{ids[1]}; delete #{ids[2]}" in told.content
    assert "All of it was undone; every memory is as it was before them." in told.content
    assert session.agent.last_refinement_at == session.ended_at


def test_record_and_note_name_the_share_and_the_threshold_that_was_the_limit(ledger):
    session, ids = ledger

    trip(session, ids[1:])

    (told,) = factories.journal(session.agent)
    said = "tried to remove 40 of 100 tokens (40%); the limit was 25 (25%)"
    assert session.end_reason == factories.records(session.agent)[-1].data["reason"] == said
    assert told.content.startswith(f"My refinement session was rolled back entirely: it {said}. ")
    assert told.content.endswith("my refinement_threshold, which I can change with self_authoring.")


def test_record_and_note_name_the_rolling_floor_if_that_was_the_narrower_limit(app):
    agent = factories.agent()
    small, _ = factories.ledger(agent, 10, 90)
    earlier = RefinementSession.start(agent)
    earlier.finish("completed", "the agent completed it")
    earlier.removable_tokens = earlier.removed_tokens = 90
    session = factories.session(agent)

    trip(session, [small.id])

    told = factories.journal(agent)[-1].content
    said = "tried to remove 10 of 100 tokens (10%); the limit was 5 (5%), by REFINE_ROLLING_FLOOR"
    assert session.end_reason == factories.records(agent)[-1].data["reason"] == said
    assert said in told
    assert told.endswith(
        "an operator's setting, REFINE_ROLLING_FLOOR 0.5 for all sessions of 30 days; "
        "my refinement_threshold would allow more."
    )


def test_after_a_rollback_nothing_counts_as_removed(ledger):
    session, ids = ledger
    editing.consolidate(session, ids[:2], text_of(20))

    trip(session, ids[2:])

    assert SessionEntry.of(session) == {}
    assert RefinementSession.removed_recently(session.agent) == 0
