"""What is outdated or wrong is retired: out of the prompt, and kept with what replaced it."""

from datetime import UTC, datetime, timedelta

import pytest

from refine.extensions import db
from refine.models import EditRefused
from refine.refinement import time_machine
from tests import editing, factories
from tests.models.runs.session.ledgers import memory

MARCH = datetime(2026, 3, 4, 12, tzinfo=UTC)
BONN = "Mira lives in Bonn, in a flat above the bakery"
KÖLN = "Mira lives in Köln, in a flat above a bookshop"
OVEN = "The oven in the kitchen needs a new door"
NUMBER = "Mira's phone number is 555 0142"
CORRECTED = "Mira's phone number is 555 0143, the other was a mistake"


@pytest.fixture
def ids(app):
    """Memories of different days, and enough beside them that any may go."""
    agent = factories.agent()
    texts = (BONN, OVEN, NUMBER, CORRECTED)
    days = (MARCH + timedelta(days=n) for n in range(len(texts)))
    made = [
        factories.memory(agent, text, created_at=day) for text, day in zip(texts, days, strict=True)
    ]
    factories.ledger(agent, 400)
    return [each.id for each in made]


@pytest.fixture
def session(ids):
    return factories.session(memory(ids[0]).agent)


def refused(edit):
    with pytest.raises(EditRefused) as refusal:
        edit()
    return refusal.value


# -- the three edits -------------------------------------------------------------------------------


def test_an_update_with_a_reason_puts_a_new_memory_in_place_of_the_retired_one(session, ids):
    new = editing.update(session, ids[0], KÖLN, MARCH + timedelta(days=9), reason="outdated")

    old = memory(ids[0])
    assert (old.content, old.discarded) == (BONN, True)
    assert (old.retired_reason, old.replaced_by_id) == ("outdated", new.id)
    assert (new.content, new.is_kept_core) == (KÖLN, True)
    assert session.edits == {"consolidated": 0, "updated": 1, "deleted": 0, "protected": 0}
    assert (session.counted("retired"), session.mutation_count) == (1, 1)


def test_what_replaces_an_outdated_memory_is_of_now_and_a_correction_of_the_same_day(session, ids):
    now = MARCH + timedelta(days=9)

    outdated = editing.update(session, ids[0], KÖLN, now, reason="outdated")
    wrong = editing.update(session, ids[1], OVEN.replace("door", "lamp"), now, reason="wrong")

    assert (outdated.created_at, wrong.created_at) == (now, MARCH + timedelta(days=1))


def test_a_merge_of_outdated_memories_is_of_the_day_of_the_last_and_retires_all(session, ids):
    merged = editing.consolidate(session, ids[2:], "Mira's number: 555 0143", reason="outdated")

    assert merged.created_at == MARCH + timedelta(days=3)
    assert {memory(id_).replaced_by_id for id_ in ids[2:]} == {merged.id}
    assert session.counted("retired") == 2


def test_a_deletion_with_a_reason_links_what_it_goes_by(session, ids):
    editing.delete(session, ids[2], reason="wrong", by_id=ids[3])

    gone = memory(ids[2])
    assert (gone.retired_reason, gone.replaced_by_id) == ("wrong", ids[3])


def test_a_deletion_with_a_reason_needs_nothing_in_its_place(session, ids):
    editing.delete(session, ids[1], reason="outdated")

    assert (memory(ids[1]).retired_reason, memory(ids[1]).replaced_by_id) == ("outdated", None)


# -- what is refused -------------------------------------------------------------------------------


def test_at_most_three_memories_are_retired_in_a_session(session, ids):
    editing.delete(session, ids[0], reason="outdated")
    editing.delete(session, ids[1], reason="outdated")

    refusal = refused(
        lambda: editing.consolidate(session, ids[2:], "Mira's number: 555 0143", reason="wrong")
    )

    assert "at most 3 memories" in str(refusal)
    assert "1 of them are left" in str(refusal)
    assert refusal.cause == "retiring"
    editing.delete(session, ids[2], reason="wrong")


@pytest.mark.parametrize("is_deleted", [True, False])
def test_what_this_session_made_is_not_retired_by_it(session, ids, is_deleted):
    merged = editing.consolidate(session, ids[2:], f"{NUMBER}; {CORRECTED[7:]}")

    refusal = refused(
        lambda: (
            editing.delete(session, merged.id, reason="wrong")
            if is_deleted
            else editing.update(session, merged.id, NUMBER, reason="wrong")
        )
    )

    assert refusal.cause == "retiring"
    assert merged.is_kept_core


def test_only_a_later_kept_memory_that_speaks_of_the_same_can_replace_one(session, ids):
    by = {
        ids[2]: "not of a later date",
        ids[3]: "cannot replace itself",
        9_999: "Memory #9999 not found",
    }
    for id_, problem in by.items():
        refusal = refused(
            lambda id_=id_: editing.delete(session, ids[3], reason="wrong", by_id=id_)
        )
        assert problem in str(refusal)
    refusal = refused(lambda: editing.delete(session, ids[0], reason="outdated", by_id=ids[1]))
    assert "too few words in common" in str(refusal)
    assert memory(ids[0]).is_kept_core


def test_a_memory_of_the_same_moment_replaces_none(ids):
    agent = memory(ids[2]).agent
    other = factories.memory(agent, f"{CORRECTED}!", created_at=memory(ids[2]).created_at)
    session = factories.session(agent)

    refusal = refused(lambda: editing.delete(session, ids[2], reason="wrong", by_id=other.id))

    assert "not of a later date" in str(refusal)


def test_a_text_about_something_else_replaces_nothing(session, ids):
    refusal = refused(lambda: editing.update(session, ids[0], "Tea is brewed", reason="wrong"))

    assert "too few words in common" in str(refusal)


# -- afterwards ------------------------------------------------------------------------------------


def test_a_search_finds_what_was_retired_and_nothing_else(session, ids):
    editing.delete(session, ids[2], reason="wrong", by_id=ids[3])
    editing.delete(session, ids[0], reason="outdated")

    assert [each.id for each in editing.search(session, None, retired=True)] == [ids[0], ids[2]]
    assert [each.id for each in editing.search(session, "bonn", retired=True)] == [ids[0]]
    assert editing.search(session, "bonn") == []


def test_what_was_retired_is_restored_like_any_other_and_is_retired_no_more(session, ids):
    editing.delete(session, ids[2], reason="wrong", by_id=ids[3])

    memory(ids[2]).restore()

    assert memory(ids[2]).is_kept_core
    assert (memory(ids[2]).retired_reason, memory(ids[2]).replaced_by_id) == (None, None)


def test_an_undo_brings_back_what_was_retired_and_takes_its_replacement(session, ids):
    new = editing.update(session, ids[0], KÖLN, reason="outdated")
    editing.complete(session, "Moved.")
    db.session.commit()

    time_machine.undo(session, through="agent")
    db.session.commit()

    assert memory(ids[0]).is_kept_core
    assert memory(ids[0]).retired_reason is None
    assert memory(new.id).discarded


def test_a_rollback_does_so_too_and_tells_of_nothing_retired(app):
    agent = factories.agent(BONN, OVEN)
    session = factories.session(agent)
    id_ = next(each.id for each in db.session.scalars(agent.ledger.core()) if each.content == BONN)

    editing.delete(session, id_, reason="outdated")

    assert session.status == "rolled_back"
    assert memory(id_).is_kept_core
    assert memory(id_).retired_reason is None
    assert "Retired" not in session.summary


def test_the_closing_note_tells_of_what_was_retired_apart_from_the_edits(session, ids):
    editing.delete(session, ids[2], reason="wrong", by_id=ids[3])
    editing.complete(session, "Corrected a number.")

    (note,) = factories.journal(session.agent)
    assert "(1 deleted). Retired as outdated or wrong, and kept apart: 1. Corrected" in note.content


def test_what_was_retired_is_not_held_against_later_edits(session, ids):
    new = editing.update(session, ids[0], KÖLN, reason="outdated")
    editing.complete(session, "Moved.")
    db.session.commit()
    later = factories.session(session.agent)

    tight = editing.update(later, new.id, "Mira lives in Köln in a flat above a bookshop")

    assert tight.id == new.id
