"""Undoing an ended session: exactly, or not at all."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from refine import clock
from refine.errors import RefineError, Refused, RowAltered
from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, MemoryTask, RefinementSession
from refine.models.ledger.image import Image, images_in
from refine.models.runs import task as tasks
from refine.models.runs.session import breaker
from refine.models.runs.session.duplicates import remove_duplicates
from refine.refinement import time_machine
from refine.refinement.time_machine import Undo, UndoConflict
from tests import editing, factories, sql
from tests.chains import problems, verify_agent
from tests.commands import eventually
from tests.factories import EDITS, text_of

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=90)
NO_CHANGES = "the session left no changes, so there is nothing to undo"

Work = Callable[[RefinementSession, list[int]], object]


@pytest.fixture
def agent(app: Flask) -> Agent:
    """An agent with 12 memories of 25 tokens that may be changed, and one of each other kind."""
    agent = factories.agent()
    factories.ledger(agent, *[25] * 11, created_at=LONG_AGO)
    factories.memory(agent, text_of(25), tags=["relational"], source="letta", extra="more")
    factories.memory(agent, text_of(25), constitutional=True)
    factories.memory(agent, text_of(25), tags=["voice"])
    factories.memory(agent, text_of(25), memory_type="journal")
    factories.memory(agent, text_of(25), discarded_at=LONG_AGO)
    db.session.commit()
    return agent


# -- what sessions do ------------------------------------------------------------------------------


def doing(*edits: tuple[Any, ...]) -> Work:
    """Make these edits: a verb, the place of its memory, and of how many tokens its new text is."""

    def work(session: RefinementSession, ids: list[int]) -> None:
        places: dict[Any, int] = {**dict(enumerate(ids)), "last": ids[-1]}
        for verb, place, *tokens in edits:
            texts = [text_of(count) for count in tokens]
            if verb == "consolidate":
                chosen = [places[each] for each in place]
                places["merged"] = editing.consolidate(session, chosen, *texts).id
            else:
                getattr(editing, verb)(session, places[place], *texts)

    return work


updates = doing(("update", 0, 24))
rewrites = doing(("update", 0, 23))
deletes = doing(("delete", 0))
merges = doing(("consolidate", (0, "last"), 48))
protects = doing(("protect", 0))
MERGE = ("consolidate", (0, 1), 50)
does_everything = doing(
    ("update", 0, 24),
    ("delete", 1),
    ("consolidate", (2, "last"), 49),
    ("consolidate", ("merged", 0), 72),
    ("update", 3, 20),
    ("protect", 3),
    ("protect", 4),
)
WORKS = {
    "updates": updates,
    "updates twice": doing(("update", 0, 24), ("update", 0, 30)),
    "deletes": deletes,
    "updates and deletes": doing(("update", 0, 24), ("delete", 0)),
    "merges": merges,
    "merges a merge": doing(MERGE, ("consolidate", ("merged", 2), 75)),
    "rewrites and protects a merge": doing(MERGE, ("update", "merged", 49), ("protect", "merged")),
    "deletes a merge": doing(MERGE, ("delete", "merged")),
    "protects": protects,
    "updates and protects": doing(("update", 0, 24), ("protect", 0)),
    "does everything": does_everything,
}


def begun(agent: Agent) -> RefinementSession:
    """A session as a worker starts it: duplicates removed, snapshot taken, committed."""
    session = RefinementSession.queue(agent, "cli")
    session.claim()
    remove_duplicates(session)
    session.take_snapshot()
    db.session.commit()
    return session


def refined(agent: Agent, *works: Work) -> RefinementSession:
    """A completed session of these works, committed."""
    session = begun(agent)
    for work in works:
        work(session, changeable(agent))
    editing.complete(session, "Done.")
    assert session.status == "completed"
    db.session.commit()
    return session


# -- looking at the results ------------------------------------------------------------------------


def changeable(agent: Agent) -> list[int]:
    """The ids of the agent's first 12 core memories, not made by a session."""
    own = select(AgentMemory.id).where(
        AgentMemory.agent_id == agent.id,
        AgentMemory.memory_type == "core",
        AgentMemory.session_id.is_(None),
    )
    return list(db.session.scalars(own.order_by(AgentMemory.id).limit(12)))


def memory(memory_id: int) -> AgentMemory:
    return db.session.get_one(AgentMemory, memory_id, populate_existing=True)


def rows(agent: Agent) -> dict[int, Image]:
    """The committed image of every memory of the agent."""
    db.session.rollback()
    db.session.expire_all()
    mine = select(AgentMemory).where(AgentMemory.agent_id == agent.id)
    return {each.id: each.image() for each in db.session.scalars(mine.order_by(AgentMemory.id))}


def among(rows_now: dict[int, Image], before: dict[int, Image]) -> dict[int, Image]:
    """The rows that were there before."""
    return {id_: image for id_, image in rows_now.items() if id_ in before}


def last_record(agent: Agent) -> AuditLog:
    return factories.records(agent)[-1]


def undo(session: RefinementSession, **options: Any) -> Undo:
    """Undo as an admin, committed."""
    done = time_machine.undo(session, **{"through": "dashboard", **options})
    db.session.commit()
    return done


def conflict(session: RefinementSession) -> UndoConflict:
    error = refusal(session)
    assert isinstance(error, UndoConflict)
    return error


def refusal(session: RefinementSession, **options: Any) -> RefineError:
    """Why an undo is refused; asserts that nothing was changed."""
    db.session.commit()
    before = sql.snapshot()
    with pytest.raises(RefineError) as error:
        time_machine.undo(session, **{"through": "dashboard", **options})
    db.session.commit()
    assert sql.snapshot() == before
    return error.value


# -- every row exactly as before -------------------------------------------------------------------


def test_an_undo_restores_every_row_exactly(agent, subtests):
    before = rows(agent)
    for name, work in WORKS.items():
        session = refined(agent, work)
        found = agent.ledger.core_totals()
        seen_before = set(rows(agent))

        effect = undo(session).effect

        after = rows(agent)
        made = [memory(id_) for id_ in after if id_ not in before]
        told = [image for id_, image in after.items() if id_ not in seen_before]
        with subtests.test(name):
            assert among(after, before) == before
            assert [each.id for each in made if each.is_kept_core] == []
            assert {(image["memory_type"], image["discarded_at"]) for image in told} == {
                ("journal", None)
            }
            assert (effect.memories_before, effect.mass_before) == found
            assert (effect.memories_after, effect.mass_after) == agent.ledger.core_totals()
    assert problems() == []


def test_only_a_session_that_left_changes_can_be_undone(agent):
    queued = RefinementSession.queue(agent, "cli")
    queued.request_stop()
    declined = begun(agent)
    declined.finish("declined", "a test")
    rolled_back = begun(agent)
    WORKS["updates and deletes"](rolled_back, changeable(agent))
    breaker.roll_back(rolled_back, 25, NOW)
    db.session.commit()

    for session in (queued, declined, rolled_back, refined(agent)):
        assert str(refusal(session)) == NO_CHANGES
        assert not session.can_undo


def test_sessions_that_ended_in_any_way_can_be_undone(agent, subtests):
    original = factories.memory(agent, f"abcdefg {text_of(20)}, raining")
    duplicate = factories.memory(agent, original.content.title(), tags=["relational"])
    db.session.commit()
    before = rows(agent)
    statuses: tuple[Any, ...] = ("incomplete", "declined", "failed", "skipped")
    for status in statuses:
        session = begun(agent)
        assert memory(duplicate.id).discarded
        session.finish(status, "a test")
        db.session.commit()

        undo(session)

        with subtests.test(status):
            assert among(rows(agent), before) == before
            assert session.status == status


# -- twice is once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [updates, merges], ids=["updates", "merges"])
def test_memories_saved_since_stay_even_in_the_words_of_the_session(agent, work):
    before = {each.content for each in db.session.scalars(agent.ledger.core())}
    session = refined(agent, work)
    (written,) = {each.content for each in db.session.scalars(agent.ledger.core())} - before
    saved, existing = agent.ledger.remember(written, "core")
    db.session.commit()

    undo(session)

    assert not existing
    assert memory(saved.id).is_kept_core


@pytest.mark.parametrize("first_and_after", [False, True])
def test_undoing_twice_changes_nothing_more(agent, first_and_after):
    session = refined(agent, does_everything)
    first = undo(session, and_after=first_and_after, through="command line", at=NOW)
    before = sql.snapshot()

    for and_after in (False, True):
        second = undo(session, and_after=and_after, at=NOW + timedelta(days=1))

        assert (first.is_done, second.is_done, second.sessions) == (False, True, [])
        assert sql.snapshot() == before
    seen = time_machine.preview(session)
    assert (seen.is_done, seen.sessions) == (True, [])
    assert str(seen.effect).startswith("no memory changes")


def test_an_undone_session_names_the_time_and_the_user(agent):
    someone, user = factories.user(), factories.user(email="ada@example.org")
    by: dict[str, dict[str, Any]] = {
        "ada@example.org": {"user": user},
        "the command line": {"through": "command line"},
        "the agent": {"through": "agent"},
    }
    for name, options in by.items():
        session = refined(agent, deletes)
        figures = session.summary_line()

        undo(session, at=NOW, **options)

        assert session.undone_by_label == name
        assert (session.undone_at, session.undone_by) == (NOW, options.get("user"))
        assert session.undone_through == options.get("through", "dashboard")
        assert last_record(agent).user_id == session.undone_by_id != someone.id
        # the outcome stays as it was
        assert (session.status, session.summary_line()) == ("completed", figures)
        assert (session.removed_tokens, session.mutation_count) == (25, 1)


# -- what happened since ---------------------------------------------------------------------------


def test_overlapping_sessions_are_undone_in_reverse_order_only(agent):
    before = rows(agent)
    earlier = refined(agent, updates)
    between = rows(agent)
    later = refined(agent, rewrites)
    (edit,) = [record for record in factories.records(agent) if record.session_id == later.id][1:-1]

    found = conflict(earlier)

    (obstacle,) = found.obstacles
    id_ = changeable(agent)[0]
    assert (obstacle.memory_id, obstacle.session_id) == (id_, later.id)
    assert (obstacle.sequence, obstacle.action) == (edit.sequence, "memory_refinement_update")
    assert (obstacle.at, found.unexplained) == (edit.created_at, set())
    assert str(found) == (
        "nothing was undone, because these memories were changed after the session: "
        f"#{id_} by record "
        f"{edit.sequence} (memory_refinement_update, {edit.created_at:%Y-%m-%d %H:%M} UTC); "
        "you can undo this session and everything after it"
    )
    undo(later)
    assert among(rows(agent), between) == between
    undo(earlier)
    assert among(rows(agent), before) == before
    assert problems() == []


def test_refuses_an_undo_that_would_lose_what_a_later_session_deleted(app):
    place, number = "Mira found herons at Kastell, by the river", "Mira counted 17 herons"
    fact = "Mira found 17 herons at Kastell"
    agent = factories.agent(place, number, fact)
    one, other, third = [memory.id for memory in db.session.scalars(agent.ledger.core())]
    factories.ledger(agent, 400)
    text = f"{place}; she counted 17 herons"
    earlier = refined(agent, lambda session, _: editing.consolidate(session, [one, other], text))
    later = refined(agent, lambda session, _: editing.delete(session, third))
    db.session.commit()

    (obstacle,) = conflict(earlier).obstacles

    assert (obstacle.memory_id, obstacle.session_id) == (third, later.id)
    undo(earlier, and_after=True)
    kept = {memory.content for memory in db.session.scalars(agent.ledger.core())}
    assert kept > {place, number, fact}


@pytest.mark.parametrize("details", ["keep", "count"])
def test_refuses_an_undo_that_would_discard_the_last_copy_of_a_removed_duplicate(
    set_setting, details
):
    set_setting(details=details)
    agent = factories.agent("Mira drinks tea.", "Mira drinks green tea!")
    ids = [memory.id for memory in db.session.scalars(agent.ledger.core())]
    others = [memory.id for memory in factories.ledger(agent, 25, 25, 400)]
    earlier = factories.session(agent)
    text = "Mira drinks her green tea!"
    editing.consolidate(earlier, ids, text)
    editing.complete(earlier, "Done.")
    copy = factories.memory(agent, text)
    gone, _ = (factories.memory(agent, "An owl sat there.") for _ in range(2))
    later = factories.session(agent)
    assert remove_duplicates(later) == 2
    editing.consolidate(later, others[:2], text_of(30))
    editing.complete(later, "Done.")
    gone.discard()
    db.session.commit()

    (obstacle,) = conflict(earlier).obstacles

    assert (obstacle.memory_id, obstacle.session_id) == (copy.id, later.id)
    factories.memory(agent, text)
    db.session.commit()
    undo(earlier)
    assert text in {memory.content for memory in db.session.scalars(agent.ledger.core())}


def test_where_details_are_only_counted_an_undo_looks_at_none(set_setting):
    agent = factories.agent("a walk.", "a walk!", "Mira is 17")
    one, _, third = [memory.id for memory in db.session.scalars(agent.ledger.core())]
    factories.ledger(agent, 400)
    set_setting(details="count")
    earlier = refined(agent, lambda session, _: editing.delete(session, one))
    refined(agent, lambda session, _: editing.delete(session, third))
    db.session.commit()

    assert undo(earlier).sessions == [earlier]


def test_sessions_on_different_memories_are_undone_in_any_order(agent):
    before = rows(agent)
    earlier = refined(agent, updates)
    ids = changeable(agent)
    later = refined(agent, lambda session, _: editing.delete(session, ids[5]))

    undo(earlier)

    assert memory(ids[5]).discarded
    undo(later)
    assert among(rows(agent), before) == before


def test_a_conflict_names_every_memory_and_record_in_the_way(agent):
    earlier = refined(agent, does_everything)
    ids = changeable(agent)
    memory(ids[1]).restore()
    memory(ids[1]).discard()
    memory(ids[1]).restore()
    memory(ids[4]).set_constitutional(False)

    found = conflict(earlier)

    assert [(each.memory_id, each.action) for each in found.obstacles] == [
        (ids[1], "memory_restored"),
        (ids[1], "memory_discarded"),
        (ids[1], "memory_restored"),
        (ids[4], "memory_constitutional_toggle"),
    ]
    assert f": #{ids[1]} by record" in str(found)
    assert f"; #{ids[4]} by record" in str(found)
    # a change without a record: undoing everything after would not help, and is not offered
    memory(ids[3]).tags = ["voice"]
    assert str(conflict(earlier)).endswith(f"; #{ids[3]} in the database, not by Refine")


def toggle(changed: AgentMemory) -> None:
    changed.set_constitutional(not changed.constitutional)


def test_a_later_change_by_an_admin_is_a_conflict(agent, subtests):
    ids = changeable(agent)
    cases = [
        (updates, toggle, "memory_constitutional_toggle"),
        (doing(("update", 1, 24)), AgentMemory.discard, "memory_discarded"),
        (doing(("delete", 2)), AgentMemory.restore, "memory_restored"),
        (doing(("protect", 3)), toggle, "memory_constitutional_toggle"),
    ]
    for position, (work, change, action) in enumerate(cases):
        session = refined(agent, work)
        change(memory(ids[position]))
        is_constitutional = memory(ids[position]).constitutional

        found = conflict(session)

        with subtests.test(position=position):
            assert [each.action for each in found.obstacles] == [action]
            assert memory(ids[position]).constitutional == is_constitutional


def test_a_toggle_between_two_edits_is_a_conflict_and_goes_with_everything_after(agent):
    before = rows(agent)
    session = begun(agent)
    id_ = changeable(agent)[0]
    editing.update(session, id_, text_of(24))
    memory(id_).set_constitutional(True)
    editing.complete(session, "Done.")

    found = conflict(session)
    undo(session, and_after=True)

    assert [each.action for each in found.obstacles] == ["memory_constitutional_toggle"]
    assert among(rows(agent), before) == before


# -- changes outside the application ---------------------------------------------------------------


def test_an_unrecorded_change_of_any_field_of_the_state_is_a_conflict(agent, subtests):
    session = refined(agent, updates)
    id_ = changeable(agent)[0]
    changes = {
        "content": "other words",
        "memory_type": "journal",
        "constitutional": True,
        "tags": ["voice"],
        "created_at": NOW,
        "discarded_at": NOW,
    }
    for field, value in changes.items():
        setattr(memory(id_), field, value)
        db.session.flush()
        with subtests.test(field):
            with pytest.raises(UndoConflict) as error:
                time_machine.undo(session, through="dashboard")
            assert (error.value.obstacles, error.value.unexplained) == ([], {id_})
            assert str(error.value) == (
                "nothing was undone, because these memories were changed after the session: "
                f"#{id_} in the database, not by Refine"
            )
        db.session.rollback()


@pytest.mark.parametrize("change", ["tags = '{voice}'", "content = content || 'x'"])
def test_a_session_whose_memory_was_altered_by_sql_cannot_be_undone(agent, change):
    session = refined(agent, updates)
    id_ = changeable(agent)[0]
    sql.tamper(f"UPDATE agent_memories SET {change} WHERE id = {id_}")

    for and_after in (False, True):
        error = refusal(session, and_after=and_after)
        assert isinstance(error, RowAltered)
        assert f"memory {id_} was changed in the database, not by Refine" in str(error)


# -- and everything after it -----------------------------------------------------------------------


def test_and_after_takes_back_sessions_toggles_discards_and_restores(agent):
    gone = next(id_ for id_, image in rows(agent).items() if image["discarded_at"])
    before = rows(agent)
    ids = changeable(agent)
    first = refined(agent, updates)
    memory(ids[7]).set_constitutional(True)
    second = refined(agent, rewrites, merges)
    memory(gone).restore()
    memory(ids[8]).discard()
    third = refined(agent, lambda session, _: editing.update(session, gone, text_of(24)))

    done = undo(first, and_after=True, through="command line")

    record = last_record(agent)
    assert among(rows(agent), before) == before
    assert list(done.sessions) == [first, second, third]
    assert all(each.undone_at is not None for each in (first, second, third))
    assert record.data["undone_sessions"] == [str(each.id) for each in done.sessions]
    assert (record.data["by"], record.data["and_after"]) == ("command line", True)
    assert (record.session_id, record.user_id) == (first.id, None)
    assert problems() == []


def test_and_after_keeps_memories_saved_since_and_undoes_their_edits(agent):
    session = refined(agent, updates)
    merged, _ = agent.ledger.remember("abcdefg anew", "core", ["relational"])
    note, _ = agent.ledger.remember("a new note", "journal")
    toggled, _ = agent.ledger.remember("another memory", "core")
    discarded, _ = agent.ledger.remember("a third memory", "core")
    saved = [each.id for each in (merged, note, toggled, discarded)]
    before = [memory(id_).image() for id_ in saved]
    text = f"{text_of(25)} anew"
    refined(agent, lambda later, ids: editing.consolidate(later, [merged.id, ids[1]], text))
    toggle(memory(toggled.id))
    memory(discarded.id).discard()

    undo(session, and_after=True)

    assert [memory(id_).image() for id_ in saved] == before


def test_and_after_is_refused_where_it_would_only_alter_when_something_was_discarded(agent):
    gone = next(id_ for id_, image in rows(agent).items() if image["discarded_at"])
    session = refined(agent)
    memory(gone).restore()
    memory(gone).discard()

    assert str(refusal(session, and_after=True)) == NO_CHANGES

    toggle(memory(changeable(agent)[0]))
    assert len(undo(session, and_after=True).changes) == 2


def test_and_after_keeps_a_promotion_and_undoes_earlier_changes(agent):
    session = refined(agent, updates)
    entry = factories.entry(agent, "an entry")
    entry.discard()
    entry.restore()
    entry.set_constitutional(True)
    entry.set_constitutional(False)
    task = MemoryTask.reflect(agent, "cli")
    task.claim()
    tasks.promote(task, [entry.id])
    record = factories.records(agent)[-1]

    undone = undo(session, and_after=True)

    kept = memory(entry.id)
    assert (kept.memory_type, kept.constitutional, kept.discarded) == ("core", False, False)
    assert record.sequence not in undone.sequences
    assert verify_agent(agent).problem is None


def test_and_after_goes_back_through_earlier_undos(agent):
    before, at = rows(agent), clock.now()
    first = refined(agent, merges)
    second = refined(agent, lambda session, ids: does_everything(session, ids[1:-1]))
    undo(second, at=at)
    third = refined(agent, lambda session, ids: editing.delete(session, ids[1]))
    fourth = refined(agent, lambda session, ids: editing.delete(session, ids[2]))
    undo(third, and_after=True, at=at)
    committed = sql.snapshot()
    assert undo(fourth).is_done
    assert sql.snapshot() == committed

    done = undo(first, and_after=True)

    assert among(rows(agent), before) == before
    assert list(done.sessions) == [first]
    assert [each.undone_at for each in (second, third, fourth)] == [at] * 3
    assert problems() == []


# -- live sessions ---------------------------------------------------------------------------------


def test_nothing_is_undone_during_a_live_session(agent):
    ended = refined(agent, deletes)
    live = RefinementSession.queue(agent, "cli")
    for status in ("queued", "running"):
        if status == "running":
            live.claim()
        for and_after in (False, True):
            assert str(refusal(live, and_after=and_after)) == (
                f"the session is {status}; it can be undone once it has ended"
            )
            assert str(refusal(ended, and_after=and_after)) == (
                f"session {live.id} of this agent is {status}; wait until it has ended, then undo"
            )


def test_the_second_of_two_concurrent_undos_waits_and_finds_it_done(app, agent):
    session_id = refined(agent, deletes).id
    read = threading.Event()

    def second() -> bool:
        with app.app_context():
            mine = db.session.get_one(RefinementSession, session_id)
            read.set()
            done = time_machine.undo(mine, through="dashboard")
            db.session.commit()
            return done.is_done

    time_machine.undo(db.session.get_one(RefinementSession, session_id), through="command line")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(second)
        read.wait(10)
        eventually(lambda: sql.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))
        db.session.commit()
        is_done = other.result(10)

    undone = [each for each in factories.records(agent) if each.data.get("operation") == "undo"]
    assert is_done
    assert len(undone) == 1


# -- constitutional memories -----------------------------------------------------------------------


def test_undoing_a_protection_lifts_only_a_flag_that_the_session_set(agent):
    id_ = changeable(agent)[0]
    undo(refined(agent, protects))
    was_lifted = not memory(id_).constitutional
    toggle(memory(id_))

    undo(refined(agent, protects, lambda session, ids: editing.delete(session, ids[1])))

    assert was_lifted
    assert memory(id_).constitutional


# -- the record ------------------------------------------------------------------------------------


def test_an_undo_writes_one_record_with_its_author_and_figures(agent):
    user = factories.user()
    session = refined(agent, does_everything)
    earlier = factories.records(agent)

    undo(session, user=user, at=NOW)

    (record,) = factories.records(agent)[len(earlier) :]
    assert (record.action, record.created_at) == ("memory_refinement_rollback", NOW)
    assert (record.user_id, record.session_id) == (user.id, session.id)
    assert (record.auditable_type, record.auditable_id) == ("RefinementSession", str(session.id))
    beside = ("memories", "undone_records")
    figures = {name: value for name, value in record.data.items() if name not in beside}
    expected = {
        "operation": "undo",
        "by": "dashboard",
        "and_after": False,
        "undone_sessions": [str(session.id)],
        "image_version": 1,
        "mass_before": 317,
        "mass_after": 350,
        "memories_before": 11,
        "memories_after": 14,
    }
    assert {**figures, **expected} == figures
    edits = {each.sequence for each in earlier if each.action in EDITS}
    assert edits <= set(record.data["undone_records"])


def test_the_record_seals_the_content_of_memories_before_and_after(agent):
    id_ = changeable(agent)[0]
    memory(id_).content = f"abcdefg abcdefg beforehand {text_of(10)}"
    db.session.commit()
    tokens = memory(id_).token_estimate
    session = refined(agent, updates)
    found = memory(id_).image()

    undo(session)

    left, record = memory(id_).image(), last_record(agent)
    (opened,) = [each for each in images_in(record.data) if each["before"]]
    (contents,) = [each for each in record.sealed["memories"] if "before" in each]
    assert (opened["id"], opened["after"]["digest"]) == (id_, memory(id_).state_digest)
    assert (opened["before"]["token_estimate"], opened["after"]["token_estimate"]) == (24, tokens)
    contents = [contents[state]["content"] for state in ("before", "after")]
    assert contents == [found["content"], left["content"]]
    assert "beforehand" not in str(record.data)
    assert "beforehand" in str(record.sealed)


def test_the_agent_reads_of_each_undo_in_its_journal(agent):
    first = refined(agent, deletes)
    second = refined(agent, lambda session, ids: editing.delete(session, ids[1]))
    time_machine.undo_own_last(second, at=NOW)
    undo(first, at=NOW)
    third = refined(agent, updates)
    refined(agent, rewrites)
    # what it was told stays through later undos
    undo(third, and_after=True, at=NOW)

    on = f"{first.created_at:%Y-%m-%d}"
    told = [each.content for each in factories.journal(agent) if " undid " in each.content]
    assert [each.split(":")[0] for each in told] == [
        f"I undid my refinement session of {on}",
        f"An admin undid my refinement session of {on}",
        f"An admin undid my refinement session of {on} and what came after it",
    ]
    assert told[1].endswith(": 1 brought back; 13 → 14 memories, 325 → 350 tokens.")


# -- preview ---------------------------------------------------------------------------------------


def test_a_preview_changes_nothing_and_shows_the_effect(agent, subtests):
    factories.ledger(agent, 1000)
    db.session.commit()
    effects = {
        updates: "1 rewritten to what they were; 15 → 15 memories, 1,349 → 1,350 tokens",
        deletes: "1 brought back; 14 → 15 memories, 1,325 → 1,350 tokens",
        merges: "2 brought back, 1 discarded; 14 → 15 memories, 1,348 → 1,350 tokens",
        protects: "1 no longer constitutional; 15 → 15 memories, 1,350 → 1,350 tokens",
        does_everything: None,
    }
    for work, told in effects.items():
        session = refined(agent, work)
        before = sql.snapshot()
        seen = time_machine.preview(session)
        wide = time_machine.preview(session, and_after=True)
        db.session.commit()
        with subtests.test(told):
            assert sql.snapshot() == before
            assert told in (str(seen.effect), None)
            # with nothing after it, "and after" is the same
            assert (wide.effect, wide.sessions) == (seen.effect, seen.sessions)

        done = undo(session)

        with subtests.test(f"undone: {told}"):
            assert (seen.effect, seen.sessions) == (done.effect, done.sessions)
            assert not seen.is_done


def test_previews_and_the_agents_own_undo_refuse_like_an_undo(agent):
    session = refined(agent, updates)
    memory(changeable(agent)[0]).discard()
    db.session.commit()
    others = (time_machine.preview, time_machine.undo_own_last)

    for how in others:
        with pytest.raises(UndoConflict):
            how(session)
    RefinementSession.queue(agent, "cli")
    db.session.commit()
    for how in others:
        with pytest.raises(Refused, match="is queued"):
            how(session)


# -- the agent's own undo --------------------------------------------------------------------------


def test_an_agent_may_undo_its_last_session_once(agent):
    before = rows(agent)
    session = refined(agent, does_everything)

    done = time_machine.undo_own_last(session, at=NOW)
    db.session.commit()

    assert among(rows(agent), before) == before
    assert not done.is_done
    assert (session.undone_at, session.undone_through) == (NOW, "agent")
    assert (last_record(agent).data["by"], last_record(agent).user_id) == ("agent", None)
    committed = sql.snapshot()
    second = time_machine.undo_own_last(session)
    db.session.commit()
    assert second.is_done
    assert sql.snapshot() == committed


def test_an_agent_may_not_undo_an_earlier_session(agent):
    earlier = refined(agent, updates)
    refined(agent, lambda session, ids: editing.delete(session, ids[5]))
    before = sql.snapshot()

    with pytest.raises(Refused, match="only its last session with changes; an admin can"):
        time_machine.undo_own_last(earlier)
    db.session.commit()

    assert sql.snapshot() == before


@pytest.mark.parametrize("status", ["completed", "declined", "skipped", "failed"])
def test_an_agent_may_undo_the_session_before_one_without_changes(agent, status):
    session = refined(agent, deletes)
    begun(agent).finish(status, "a test")

    time_machine.undo_own_last(session)

    assert session.undone_at is not None
