"""An ended session taken back: exactly, or not at all."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from refine import clock
from refine.errors import RefineError, Refused, SealingError
from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, MemoryTask, RefinementSession, User
from refine.models.integrity import verify_agent, verify_all
from refine.models.ledger.image import Image
from refine.models.runs.session import breaker, editing
from refine.models.runs.session.duplicates import remove_duplicates
from refine.models.runs.task import keeping
from refine.refinement import time_machine
from refine.refinement.time_machine import Undo, UndoConflict
from tests import factories, sql
from tests.commands import eventually
from tests.factories import EDITS, text_of
from tests.refinement.conftest import World

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=90)

BREAK_ROW = """
CREATE FUNCTION break_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the disk is full'; END $$;
CREATE TRIGGER break_row BEFORE UPDATE ON agent_memories FOR EACH ROW
  WHEN (OLD.id = {}) EXECUTE FUNCTION break_row();
"""

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


@pytest.fixture
def broken_row(app: Flask) -> Iterator[Callable[[int], None]]:
    """Makes changes of this memory's row fail, as a full disk would."""
    yield lambda memory_id: sql.run(BREAK_ROW.format(memory_id))
    db.session.rollback()
    sql.run("DROP FUNCTION break_row() CASCADE")


# -- what sessions do ------------------------------------------------------------------------------


def does_nothing(session: RefinementSession, ids: list[int]) -> None:
    pass


def updates(session: RefinementSession, ids: list[int]) -> None:
    editing.update(session, ids[0], text_of(24))


def updates_twice(session: RefinementSession, ids: list[int]) -> None:
    editing.update(session, ids[0], text_of(24))
    editing.update(session, ids[0], text_of(30))


def deletes(session: RefinementSession, ids: list[int]) -> None:
    editing.delete(session, ids[0])


def updates_and_deletes(session: RefinementSession, ids: list[int]) -> None:
    editing.update(session, ids[0], text_of(24))
    editing.delete(session, ids[0])


def merges(session: RefinementSession, ids: list[int]) -> None:
    editing.consolidate(session, [ids[0], ids[-1]], text_of(50))


def merges_a_merge(session: RefinementSession, ids: list[int]) -> None:
    merged = editing.consolidate(session, ids[:2], text_of(50))
    editing.consolidate(session, [merged.id, ids[2]], text_of(75))


def rewrites_and_protects_a_merge(session: RefinementSession, ids: list[int]) -> None:
    merged = editing.consolidate(session, ids[:2], text_of(50))
    editing.update(session, merged.id, text_of(49))
    editing.protect(session, merged.id)


def deletes_a_merge(session: RefinementSession, ids: list[int]) -> None:
    merged = editing.consolidate(session, ids[:2], text_of(50))
    editing.delete(session, merged.id)


def protects(session: RefinementSession, ids: list[int]) -> None:
    editing.protect(session, ids[0])


def updates_and_protects(session: RefinementSession, ids: list[int]) -> None:
    editing.update(session, ids[0], text_of(24))
    editing.protect(session, ids[0])


def does_everything(session: RefinementSession, ids: list[int]) -> None:
    editing.update(session, ids[0], text_of(24))
    editing.delete(session, ids[1])
    merged = editing.consolidate(session, [ids[2], ids[-1]], text_of(49))
    editing.consolidate(session, [merged.id, ids[0]], text_of(72))
    editing.update(session, ids[3], text_of(20))
    editing.protect(session, ids[3])
    editing.protect(session, ids[4])


WORKS = [
    does_nothing,
    updates,
    updates_twice,
    deletes,
    updates_and_deletes,
    merges,
    merges_a_merge,
    rewrites_and_protects_a_merge,
    deletes_a_merge,
    protects,
    updates_and_protects,
    does_everything,
]
# Where each of them would take long.
SOME = [updates_and_deletes, merges_a_merge, rewrites_and_protects_a_merge, does_everything]


def begun(agent: Agent) -> RefinementSession:
    """A session as a worker begins it: duplicates gone, snapshot taken, committed."""
    session = RefinementSession.queue(agent, "cli")
    session.claim()
    remove_duplicates(session)
    session.take_snapshot()
    db.session.commit()
    return session


def refined(agent: Agent, *works: Work) -> RefinementSession:
    """A completed session that did this, committed."""
    session = begun(agent)
    for work in works:
        work(session, changeable(agent))
    editing.complete(session, "Done.")
    assert session.status == "completed"
    db.session.commit()
    return session


def duplicated(agent: Agent, *tags: str) -> tuple[AgentMemory, AgentMemory]:
    """A plain memory, and an exact duplicate of it with these tags, committed."""
    original = factories.memory(agent, f"It rained {text_of(20)}")
    duplicate = factories.memory(agent, original.content.upper(), tags=list(tags))
    db.session.commit()
    return original, duplicate


# -- what is looked at -----------------------------------------------------------------------------


def changeable(agent: Agent) -> list[int]:
    """The ids of the 12 memories that the agent had from the first and may change."""
    own = select(AgentMemory.id).where(
        AgentMemory.agent_id == agent.id,
        AgentMemory.memory_type == "core",
        AgentMemory.session_id.is_(None),
    )
    return list(db.session.scalars(own.order_by(AgentMemory.id).limit(12)))


def memory(memory_id: int) -> AgentMemory:
    return db.session.get_one(AgentMemory, memory_id, populate_existing=True)


def rows(agent: Agent) -> dict[int, Image]:
    """Every memory of the agent, whole, as it is committed."""
    db.session.rollback()
    db.session.expire_all()
    mine = select(AgentMemory).where(AgentMemory.agent_id == agent.id)
    return {each.id: each.image() for each in db.session.scalars(mine.order_by(AgentMemory.id))}


def among(rows_now: dict[int, Image], before: dict[int, Image]) -> dict[int, Image]:
    """Those of the rows that were there before."""
    return {id_: image for id_, image in rows_now.items() if id_ in before}


def made_since(rows_now: dict[int, Image], before: dict[int, Image]) -> list[Image]:
    return [image for id_, image in rows_now.items() if id_ not in before]


def kept_core(images: list[Image]) -> list[int]:
    return [
        image["id"]
        for image in images
        if image["memory_type"] == "core" and image["discarded_at"] is None
    ]


def last_record(agent: Agent) -> AuditLog:
    return factories.records(agent)[-1]


def journal(agent: Agent) -> list[str]:
    return [each.content for each in factories.journal(agent)]


def problems() -> list[str]:
    db.session.rollback()
    found = [verified.problem for verified in verify_all()]
    db.session.rollback()
    return [problem for problem in found if problem is not None]


def undo(session: RefinementSession, **options: Any) -> Undo:
    """What an admin does, committed."""
    done = time_machine.undo(session, **{"through": "dashboard", **options})
    db.session.commit()
    return done


def conflict(session: RefinementSession, **options: Any) -> UndoConflict:
    """The conflict that keeps a session from being undone, and that nothing was changed."""
    db.session.commit()
    before = sql.snapshot()
    with pytest.raises(UndoConflict) as error:
        time_machine.undo(session, through="dashboard", **options)
    db.session.commit()
    assert sql.snapshot() == before
    return error.value


def refused(session: RefinementSession, **options: Any) -> str:
    """Why an undo is refused, and that nothing was changed."""
    db.session.commit()
    before = sql.snapshot()
    with pytest.raises(RefineError) as error:
        time_machine.undo(session, **{"through": "dashboard", **options})
    db.session.commit()
    assert sql.snapshot() == before
    return str(error.value)


# -- every row exactly as before -------------------------------------------------------------------


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_an_undo_puts_every_row_back_to_the_letter(agent: Agent, work: Work) -> None:
    before = rows(agent)
    session = refined(agent, work)

    undo(session)

    assert among(rows(agent), before) == before
    assert problems() == []


@pytest.mark.parametrize(
    "work",
    [does_nothing, merges, merges_a_merge, rewrites_and_protects_a_merge, deletes_a_merge],
    ids=lambda work: work.__name__,
)
def test_what_the_session_made_is_discarded_but_for_its_words_to_the_agent(
    agent: Agent, work: Work
) -> None:
    before = rows(agent)
    session = refined(agent, work)

    undo(session)

    made = made_since(rows(agent), before)
    words = [image for image in made if image["memory_type"] == "journal"]
    assert kept_core(made) == []
    assert [image["discarded_at"] for image in words] == [None, None]


def test_a_merge_that_is_undone_keeps_its_row_and_its_words(agent: Agent) -> None:
    session = refined(agent, merges)
    merged = db.session.scalars(select(AgentMemory).filter_by(session_id=session.id)).first()
    assert merged is not None
    before = merged.image()

    undo(session, at=NOW)

    assert rows(agent)[merged.id] == {**before, "discarded_at": "2026-03-04T12:00:00.000000+00:00"}


def test_duplicates_come_back_and_the_survivor_has_the_tags_that_it_had(agent: Agent) -> None:
    survivor, duplicate = duplicated(agent, "relational")
    before = rows(agent)
    session = refined(agent, does_nothing)
    assert (memory(survivor.id).tags, memory(duplicate.id).discarded) == (["relational"], True)

    undo(session)

    assert (memory(survivor.id).tags, memory(duplicate.id).discarded) == ([], False)
    assert among(rows(agent), before) == before


def test_a_survivor_that_was_rewritten_and_merged_comes_back_with_its_duplicates(
    agent: Agent,
) -> None:
    survivor, first = duplicated(agent, "relational")
    second = factories.memory(agent, f" {survivor.content} ")
    db.session.commit()
    before = rows(agent)
    session = begun(agent)
    editing.update(session, survivor.id, text_of(20))
    editing.consolidate(session, [survivor.id, changeable(agent)[0]], text_of(45))
    editing.complete(session, "Done.")

    undo(session)

    assert among(rows(agent), before) == before
    assert not memory(first.id).discarded
    assert not memory(second.id).discarded


def test_a_session_of_the_loop_is_undone_whole(world: World) -> None:
    factories.memory(world.agent, world.memories[0].content, tags=["relational"])
    before = rows(world.agent)
    ids = world.ids
    world.model.say("YES.").call("consolidate", ids=ids[:2], content=text_of(50))
    world.model.calls({"action": "delete", "id": ids[2]}, {"action": "protect", "id": ids[3]})
    world.model.call("update", id=ids[4], content=text_of(20)).call("complete", summary="Done.")
    session = world.refine()
    assert session.status == "completed"

    undo(session)

    assert among(rows(world.agent), before) == before
    assert problems() == []


def test_a_session_that_changed_nothing_is_marked_and_told_as_undone(agent: Agent) -> None:
    session = refined(agent, does_nothing)

    done = undo(session)

    assert session.undone_at is not None
    assert str(done.effect) == "no memory changes; 14 → 14 memories, 350 → 350 tokens"
    assert last_record(agent).action == "memory_refinement_rollback"


@pytest.mark.parametrize("status", ["incomplete", "declined", "failed", "skipped"])
def test_a_session_with_any_orderly_end_can_be_undone(agent: Agent, status: Any) -> None:
    _, duplicate = duplicated(agent, "relational")
    before = rows(agent)
    session = begun(agent)
    session.finish(status, "a test")
    db.session.commit()

    undo(session)

    assert among(rows(agent), before) == before
    assert (session.status, memory(duplicate.id).discarded) == (status, False)


def test_a_session_that_was_rolled_back_can_be_undone_and_gives_back_its_duplicates(
    agent: Agent,
) -> None:
    _, duplicate = duplicated(agent, "relational")
    before = rows(agent)
    session = begun(agent)
    does_everything(session, changeable(agent))
    for id_ in changeable(agent)[5:8]:
        editing.delete(session, id_)
    db.session.commit()
    assert (session.status, memory(duplicate.id).discarded) == ("rolled_back", True)

    undo(session)

    assert among(rows(agent), before) == before
    assert kept_core(made_since(rows(agent), before)) == []


def test_a_session_that_was_stopped_in_the_queue_can_be_undone_to_no_effect(agent: Agent) -> None:
    before = rows(agent)
    session = RefinementSession.queue(agent, "cli")
    session.request_stop()
    db.session.commit()

    undo(session)

    assert among(rows(agent), before) == before


def test_what_is_no_part_of_the_state_stays_as_it_was_changed_since(agent: Agent) -> None:
    session = refined(agent, updates)
    memory(changeable(agent)[0]).extra = "noted since"

    undo(session)

    assert memory(changeable(agent)[0]).extra == "noted since"


# -- twice is once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("and_after", [False, True])
@pytest.mark.parametrize("first_and_after", [False, True])
def test_undoing_twice_changes_nothing(
    agent: Agent, first_and_after: bool, and_after: bool
) -> None:
    session = refined(agent, does_everything)
    first = undo(session, and_after=first_and_after)
    before = sql.snapshot()

    second = undo(session, and_after=and_after)

    assert (first.is_done, second.is_done) == (False, True)
    assert second.sessions == []
    assert sql.snapshot() == before


def test_an_undone_session_says_when_and_by_which_user(agent: Agent) -> None:
    user = factories.user(email="ada@example.org")
    session = refined(agent, deletes)

    undo(session, user=user, at=NOW)

    assert session.undo_summary == "was undone on 2026-03-04 at 12:00 UTC by ada@example.org"
    assert (session.undone_at, session.undone_by, session.undone_through) == (
        NOW,
        user,
        "dashboard",
    )


@pytest.mark.parametrize("through", ["command line", "agent"])
def test_an_undone_session_says_how_where_no_user_did_it(agent: Agent, through: str) -> None:
    session = refined(agent, deletes)

    undo(session, through=through, at=NOW)

    assert session.undo_summary == f"was undone on 2026-03-04 at 12:00 UTC by the {through}"


def test_who_undid_it_first_stays_who_undid_it(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session, through="command line", at=NOW)

    undo(session, user=factories.user(), at=NOW + timedelta(days=1))

    assert (session.undone_at, session.undone_by) == (NOW, None)
    assert session.undo_summary.endswith("by the command line")


def test_an_undo_leaves_the_outcome_as_it_was(agent: Agent) -> None:
    session = refined(agent, deletes)
    figures = session.figures()

    undo(session)

    assert (session.status, session.figures()) == ("completed", figures)
    assert (session.removed_tokens, session.mutation_count) == (25, 1)


def test_a_session_after_an_undo_finds_everything_as_before(agent: Agent) -> None:
    before = rows(agent)
    undo(refined(agent, does_everything))

    undo(refined(agent, does_everything))

    assert among(rows(agent), before) == before
    assert problems() == []


# -- what happened since ---------------------------------------------------------------------------


def rewrites(session: RefinementSession, ids: list[int]) -> None:
    editing.update(session, ids[0], text_of(23))


def test_the_earlier_of_two_overlapping_sessions_is_refused_and_the_later_one_named(
    agent: Agent,
) -> None:
    earlier = refined(agent, updates)
    later = refined(agent, rewrites)
    (edit,) = [record for record in factories.records(agent) if record.session_id == later.id][1:-1]

    found = conflict(earlier)

    (obstacle,) = found.obstacles
    id_ = changeable(agent)[0]
    assert (obstacle.memory_id, obstacle.session_id) == (id_, later.id)
    assert (obstacle.sequence, obstacle.action) == (edit.sequence, "memory_refinement_update")
    assert (obstacle.at, found.unexplained) == (edit.created_at, set())
    assert str(found) == (
        f"nothing was undone: changed since the session: memory #{id_} by record "
        f"{edit.sequence} (memory_refinement_update, {edit.created_at:%Y-%m-%d %H:%M} UTC); "
        "you can undo this session and everything after it"
    )


@pytest.mark.parametrize("work", SOME, ids=lambda work: work.__name__)
def test_the_later_session_and_then_the_earlier_one_can_be_undone(agent: Agent, work: Work) -> None:
    before = rows(agent)
    earlier = refined(agent, updates)
    between = rows(agent)
    later = refined(agent, work)

    undo(later)
    assert among(rows(agent), between) == between
    undo(earlier)

    assert among(rows(agent), before) == before
    assert problems() == []


def test_a_merge_whose_result_a_later_session_merged_waits_for_that_one(agent: Agent) -> None:
    before = rows(agent)
    earlier = refined(agent, merges)
    (merged,) = db.session.scalars(agent.ledger.core().filter_by(session_id=earlier.id)).all()
    merged_id = merged.id
    later = begun(agent)
    editing.consolidate(later, [merged_id, changeable(agent)[1]], text_of(75))
    editing.complete(later, "Done.")

    obstacles = conflict(earlier).obstacles
    undo(later)
    undo(earlier)

    assert [(each.memory_id, each.session_id) for each in obstacles] == [(merged_id, later.id)]
    assert among(rows(agent), before) == before


def test_sessions_that_touched_other_memories_are_undone_in_any_order(agent: Agent) -> None:
    before = rows(agent)
    earlier = refined(agent, updates)
    ids = changeable(agent)
    later = refined(agent, lambda session, _: editing.delete(session, ids[5]))

    undo(earlier)

    assert memory(ids[5]).discarded
    undo(later)
    assert among(rows(agent), before) == before


def test_every_memory_and_every_record_in_the_way_is_named(agent: Agent) -> None:
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
    assert f"memory #{ids[1]} by record" in str(found)
    assert f"; memory #{ids[4]} by record" in str(found)


def toggles(agent: Agent, memory_id: int) -> None:
    memory(memory_id).set_constitutional(not memory(memory_id).constitutional)


def discards(agent: Agent, memory_id: int) -> None:
    memory(memory_id).discard()


def restores(agent: Agent, memory_id: int) -> None:
    memory(memory_id).restore()


def test_only_what_came_after_the_sessions_own_edit_of_a_memory_is_named(agent: Agent) -> None:
    session = begun(agent)
    ids = changeable(agent)
    editing.update(session, ids[0], text_of(24))
    memory(ids[1]).discard()
    memory(ids[1]).restore()
    editing.update(session, ids[1], text_of(24))
    editing.complete(session, "Done.")
    memory(ids[1]).set_constitutional(True)

    found = conflict(session)

    assert [(each.memory_id, each.action) for each in found.obstacles] == [
        (ids[1], "memory_constitutional_toggle")
    ]


@pytest.mark.parametrize(
    ("work", "since", "action"),
    [
        (updates, toggles, "memory_constitutional_toggle"),
        (updates, discards, "memory_discarded"),
        (deletes, restores, "memory_restored"),
        (protects, toggles, "memory_constitutional_toggle"),
    ],
)
def test_what_an_admin_did_since_is_in_the_way(
    agent: Agent, work: Work, since: Callable[[Agent, int], None], action: str
) -> None:
    session = refined(agent, work)
    since(agent, changeable(agent)[0])

    found = conflict(session)

    assert [each.action for each in found.obstacles] == [action]


@pytest.mark.parametrize("since", [toggles, discards])
def test_what_was_done_to_other_memories_since_is_not_in_the_way(
    agent: Agent, since: Callable[[Agent, int], None]
) -> None:
    session = refined(agent, deletes)
    other = changeable(agent)[9]
    since(agent, other)
    before = memory(other).image()

    undo(session)

    assert memory(other).image() == before
    assert not memory(changeable(agent)[0]).discarded


@pytest.mark.parametrize(
    ("there", "and_back"),
    [("set_constitutional", True), ("discard", None)],
)
def test_what_was_done_and_taken_back_since_is_not_in_the_way(
    agent: Agent, there: str, and_back: bool | None
) -> None:
    before = rows(agent)
    session = refined(agent, updates)
    changed = memory(changeable(agent)[0])
    if and_back:
        changed.set_constitutional(True)
        changed.set_constitutional(False)
    else:
        changed.discard()
        changed.restore()

    undo(session)

    assert among(rows(agent), before) == before


def test_a_toggle_between_two_edits_of_the_session_is_in_the_way(agent: Agent) -> None:
    session = begun(agent)
    id_ = changeable(agent)[0]
    editing.update(session, id_, text_of(24))
    memory(id_).set_constitutional(True)
    editing.complete(session, "Done.")

    found = conflict(session)

    assert [each.action for each in found.obstacles] == ["memory_constitutional_toggle"]


def test_a_memory_saved_since_stays_as_it_is(agent: Agent) -> None:
    session = refined(agent, deletes)
    saved, _ = agent.ledger.remember("a new memory", "core")
    before = saved.image()

    undo(session)

    assert memory(saved.id).image() == before


def test_the_words_of_a_deleted_memory_saved_anew_are_there_twice_after_an_undo(
    agent: Agent,
) -> None:
    id_ = changeable(agent)[0]
    content = memory(id_).content
    session = refined(agent, deletes)
    saved, existed = agent.ledger.remember(content, "core")

    undo(session)

    assert not existed
    assert not memory(id_).discarded
    assert not memory(saved.id).discarded


# -- changes past the application ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content", "other words"),
        ("memory_type", "journal"),
        ("constitutional", True),
        ("tags", ["voice"]),
        ("created_at", NOW),
        ("discarded_at", NOW),
    ],
)
def test_a_change_of_any_part_of_the_state_that_no_record_tells_of_is_in_the_way(
    agent: Agent, field: str, value: object
) -> None:
    session = refined(agent, updates)
    changed = memory(changeable(agent)[0])
    setattr(changed, field, value)

    found = conflict(session)

    assert (found.obstacles, found.unexplained) == ([], {changed.id})
    assert str(found) == (
        f"nothing was undone: changed since the session: memory #{changed.id} past the application"
    )


@pytest.mark.parametrize("and_after", [False, True])
def test_a_change_by_sql_is_in_the_way(agent: Agent, and_after: bool) -> None:
    session = refined(agent, updates)
    id_ = changeable(agent)[0]
    sql.tamper(f"UPDATE agent_memories SET tags = '{{voice}}' WHERE id = {id_}")

    found = conflict(session, and_after=and_after)

    assert found.unexplained == {id_}


def test_content_that_was_altered_by_sql_cannot_be_undone(agent: Agent) -> None:
    session = refined(agent, updates)
    sql.tamper(
        f"UPDATE agent_memories SET content = content || 'x' WHERE id = {changeable(agent)[0]}"
    )

    assert "cannot be opened: it was altered" in refused(session)


def test_the_wider_undo_is_not_offered_where_it_would_not_help(agent: Agent) -> None:
    session = refined(agent, does_everything)
    ids = changeable(agent)
    memory(ids[1]).restore()
    memory(ids[3]).tags = ["voice"]

    found = conflict(session)

    assert ([each.memory_id for each in found.obstacles], found.unexplained) == (
        [ids[1]],
        {ids[3]},
    )
    assert str(found).endswith(f"memory #{ids[3]} past the application")


def test_a_destroyed_key_leaves_nothing_to_undo(agent: Agent) -> None:
    session = refined(agent, deletes)
    agent.wrapped_key.wrapped, agent.wrapped_key.destroyed_at = None, clock.now()
    db.session.commit()

    with pytest.raises(SealingError, match="erased for good"):
        time_machine.undo(session, through="dashboard")


# -- and everything after it -----------------------------------------------------------------------


def test_and_after_takes_back_sessions_toggles_discards_and_restores(agent: Agent) -> None:
    gone = next(id_ for id_, image in rows(agent).items() if image["discarded_at"])
    before = rows(agent)
    ids = changeable(agent)
    first = refined(agent, updates)
    memory(ids[7]).set_constitutional(True)
    second = refined(agent, rewrites, merges)
    memory(gone).restore()
    memory(ids[8]).discard()
    third = refined(agent, lambda session, _: editing.update(session, gone, text_of(24)))

    done = undo(first, and_after=True)

    assert among(rows(agent), before) == before
    assert list(done.sessions) == [first, second, third]
    assert all(each.undone_at is not None for each in (first, second, third))
    assert problems() == []


@pytest.mark.parametrize("work", SOME, ids=lambda work: work.__name__)
def test_and_after_takes_back_whatever_two_sessions_did(agent: Agent, work: Work) -> None:
    before = rows(agent)
    first = refined(agent, work)
    left = [
        id_
        for id_ in changeable(agent)
        if not memory(id_).discarded and not memory(id_).constitutional
    ]
    refined(agent, lambda session, _: does_everything(session, left))

    undo(first, and_after=True)

    assert among(rows(agent), before) == before
    assert kept_core(made_since(rows(agent), before)) == []
    assert problems() == []


def test_and_after_leaves_what_came_before_the_session(agent: Agent) -> None:
    ids = changeable(agent)
    earlier = refined(agent, deletes)
    memory(ids[5]).set_constitutional(True)
    memory(ids[6]).discard()
    before = rows(agent)
    session = refined(agent, lambda session, _: editing.update(session, ids[1], text_of(24)))

    done = undo(session, and_after=True)

    assert among(rows(agent), before) == before
    assert (list(done.sessions), earlier.undone_at) == ([session], None)


def test_memories_saved_since_stay_and_edits_of_them_are_undone(agent: Agent) -> None:
    session = refined(agent, updates)
    core, _ = agent.ledger.remember("a new memory", "core", ["relational"])
    note, _ = agent.ledger.remember("a new note", "journal")
    before = {id_: memory(id_).image() for id_ in (core.id, note.id)}
    refined(agent, lambda later, ids: editing.consolidate(later, [core.id, ids[1]], text_of(30)))

    undo(session, and_after=True)

    assert among(rows(agent), before) == before


def test_a_toggle_and_a_discard_of_a_memory_saved_since_are_undone(agent: Agent) -> None:
    session = refined(agent, updates)
    toggled, _ = agent.ledger.remember("a new memory", "core")
    discarded, _ = agent.ledger.remember("another memory", "core")
    toggled.set_constitutional(True)
    discarded.discard()

    undo(session, and_after=True)

    assert not memory(toggled.id).constitutional
    assert not memory(discarded.id).discarded


def test_a_promotion_since_stays_and_what_was_done_before_it_is_undone(agent: Agent) -> None:
    session = refined(agent, updates)
    entry = factories.entry(agent, "an entry")
    entry.discard()
    entry.restore()
    entry.set_constitutional(True)
    entry.set_constitutional(False)
    task = MemoryTask.reflect(agent, "cli")
    task.claim()
    keeping.promote(task, [entry.id])
    record = factories.records(agent)[-1]

    undone = undo(session, and_after=True)

    kept = memory(entry.id)
    assert (kept.memory_type, kept.constitutional, kept.discarded) == ("core", False, False)
    assert record.sequence not in undone.sequences
    assert verify_agent(agent).problem is None


def test_a_toggle_between_two_edits_goes_with_everything_after(agent: Agent) -> None:
    before = rows(agent)
    session = begun(agent)
    id_ = changeable(agent)[0]
    editing.update(session, id_, text_of(24))
    memory(id_).set_constitutional(True)
    editing.complete(session, "Done.")

    undo(session, and_after=True)

    assert among(rows(agent), before) == before


def test_and_after_goes_back_through_the_undo_of_a_later_session(agent: Agent) -> None:
    before = rows(agent)
    first = refined(agent, merges)
    second = refined(agent, lambda session, ids: does_everything(session, ids[1:-1]))
    undo(second, at=NOW)

    done = undo(first, and_after=True, at=NOW + timedelta(days=1))

    assert among(rows(agent), before) == before
    assert (list(done.sessions), second.undone_at) == ([first], NOW)
    assert problems() == []


def test_an_earlier_session_that_was_undone_stays_undone(agent: Agent) -> None:
    ids = changeable(agent)
    before = rows(agent)
    earlier = refined(agent, updates)
    later = refined(agent, lambda session, _: editing.delete(session, ids[5]))
    undo(earlier, at=NOW)
    last = refined(agent, rewrites)

    done = undo(later, and_after=True)

    assert among(rows(agent), before) == before
    assert (list(done.sessions), earlier.undone_at) == ([later, last], NOW)
    assert RefinementSession.removed_recently(agent) == 0


def test_and_after_goes_back_through_another_and_after(agent: Agent) -> None:
    before = rows(agent)
    first = refined(agent, updates)
    second = refined(agent, deletes)
    third = refined(agent, lambda session, ids: editing.delete(session, ids[1]))
    undo(second, and_after=True, at=NOW)

    done = undo(first, and_after=True, at=NOW + timedelta(days=1))

    assert among(rows(agent), before) == before
    assert list(done.sessions) == [first]
    assert (second.undone_at, third.undone_at) == (NOW, NOW)


def test_a_session_that_went_with_an_earlier_one_is_done_when_it_is_undone(agent: Agent) -> None:
    first = refined(agent, updates)
    second = refined(agent, deletes)
    undo(first, and_after=True)
    before = sql.snapshot()

    done = undo(second)

    assert done.is_done
    assert sql.snapshot() == before


def test_and_after_touches_no_other_agent(agent: Agent) -> None:
    session = refined(agent, deletes)
    other = factories.agent(*(text_of(25) for _ in range(8)))
    refined(other, updates, protects)
    before, records = rows(other), len(factories.records(other))

    undo(session, and_after=True)

    assert rows(other) == before
    assert len(factories.records(other)) == records


def test_with_nothing_after_it_and_after_is_the_same_as_without(agent: Agent) -> None:
    session = refined(agent, does_everything)
    single = time_machine.preview(session)

    wide = time_machine.preview(session, and_after=True)

    assert (wide.effect, wide.sessions) == (single.effect, single.sessions)


# -- live sessions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("and_after", [False, True])
@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_live_session_cannot_be_undone(agent: Agent, status: str, and_after: bool) -> None:
    session = RefinementSession.queue(agent, "cli")
    if status == "running":
        session.claim()

    said = refused(session, and_after=and_after)

    assert said == f"the session is {status}; it can be undone when it has ended"


@pytest.mark.parametrize("and_after", [False, True])
@pytest.mark.parametrize("status", ["queued", "running"])
def test_no_session_is_undone_while_the_agent_has_a_live_one(
    agent: Agent, status: str, and_after: bool
) -> None:
    ended = refined(agent, deletes)
    live = RefinementSession.queue(agent, "cli")
    if status == "running":
        live.claim()

    said = refused(ended, and_after=and_after)

    assert said == f"session {live.id} of this agent is {status}; undo when it has ended"


def test_another_agents_live_session_is_not_in_the_way(agent: Agent) -> None:
    session = refined(agent, deletes)
    factories.session()

    undo(session)

    assert not memory(changeable(agent)[0]).discarded


def waits_for_a_lock() -> bool:
    return bool(sql.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))


def test_of_two_undos_at_once_the_second_waits_and_finds_it_done(app: Flask, agent: Agent) -> None:
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
        eventually(waits_for_a_lock)
        db.session.commit()
        is_done = other.result(10)

    undone = [each for each in factories.records(agent) if each.data.get("operation") == "undo"]
    assert is_done
    assert len(undone) == 1


def test_a_session_that_begins_during_an_undo_waits_and_finds_it_done(
    app: Flask, agent: Agent
) -> None:
    agent_id, session = agent.id, refined(agent, deletes)

    def begins() -> int | None:
        with app.app_context():
            begun = RefinementSession.start(db.session.get_one(Agent, agent_id))
            db.session.commit()
            return begun.mass_before

    time_machine.undo(session, through="dashboard")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(begins)
        eventually(waits_for_a_lock)
        db.session.commit()
        mass = other.result(10)

    assert mass == 350


# -- constitutional memories -----------------------------------------------------------------------


def test_undoing_a_protection_lifts_the_flag(agent: Agent) -> None:
    session = refined(agent, protects)
    id_ = changeable(agent)[0]
    assert memory(id_).constitutional

    undo(session)

    assert not memory(id_).constitutional


def test_a_flag_that_was_there_before_stays(agent: Agent) -> None:
    id_ = changeable(agent)[0]
    memory(id_).set_constitutional(True)
    session = refined(agent, protects)

    undo(session)

    assert memory(id_).constitutional


def test_a_flag_that_an_admin_lifted_and_set_again_is_told_apart_from_the_sessions(
    agent: Agent,
) -> None:
    session = refined(agent, protects)
    id_ = changeable(agent)[0]
    memory(id_).set_constitutional(False)

    found = conflict(session)

    assert [(each.memory_id, each.action) for each in found.obstacles] == [
        (id_, "memory_constitutional_toggle")
    ]
    assert not memory(id_).constitutional


def test_a_discarded_memory_that_was_protected_since_comes_back_with_everything_after(
    agent: Agent,
) -> None:
    before = rows(agent)
    session = refined(agent, deletes)
    memory(changeable(agent)[0]).set_constitutional(True)

    undo(session, and_after=True)

    assert among(rows(agent), before) == before


def test_without_its_record_the_database_refuses_what_an_undo_does(agent: Agent) -> None:
    session = refined(agent, protects)
    plan = time_machine.preview(session)
    (change,) = plan.changes

    memory(change.memory_id).apply(change.after, clock.now())

    with pytest.raises(DBAPIError, match="is constitutional"):
        db.session.commit()


# -- the record ------------------------------------------------------------------------------------


def test_an_undo_is_one_record_with_who_what_and_how_much(agent: Agent) -> None:
    user = factories.user()
    session = refined(agent, does_everything)
    count = len(factories.records(agent))

    undo(session, user=user, at=NOW)

    (record,) = factories.records(agent)[count:]
    assert (record.action, record.created_at) == ("memory_refinement_rollback", NOW)
    assert (record.user_id, record.session_id) == (user.id, session.id)
    assert (record.auditable_type, record.auditable_id) == ("RefinementSession", str(session.id))
    beside = ("memories", "undone_records")
    figures = {name: value for name, value in record.data.items() if name not in beside}
    assert figures == {
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


def test_the_record_names_the_records_that_it_took_back(agent: Agent) -> None:
    session = refined(agent, does_everything)
    edits = [each.sequence for each in factories.records(agent) if each.action in EDITS]

    undo(session)

    assert set(edits) <= set(last_record(agent).data["undone_records"])


def test_the_record_holds_every_memory_as_the_undo_found_and_left_it(agent: Agent) -> None:
    session = refined(agent, updates)
    id_ = changeable(agent)[0]
    found = memory(id_).image()

    undo(session)

    left = memory(id_).image()
    (opened,) = [each for each in last_record(agent).data["memories"] if each["before"]]
    (contents,) = [each for each in last_record(agent).sealed["memories"] if each["before"]]
    assert (opened["id"], opened["after"]["digest"]) == (id_, memory(id_).state_digest)
    assert (opened["before"]["token_estimate"], opened["after"]["token_estimate"]) == (24, 25)
    assert (contents["before"]["content"], contents["after"]["content"]) == (
        found["content"],
        left["content"],
    )


def test_the_record_holds_what_the_agent_is_told_and_no_memory_that_stays_as_it_is(
    agent: Agent,
) -> None:
    session = begun(agent)
    updates_and_deletes(session, changeable(agent))
    breaker.roll_back(session, 25, NOW)

    undo(session)

    told = factories.journal(agent)[-1]
    (only,) = last_record(agent).data["memories"]
    assert (only["id"], only["before"]) == (told.id, None)
    assert (only["after"]["digest"], told.session_id) == (told.state_digest, session.id)


def test_the_open_part_of_the_record_holds_no_content(agent: Agent) -> None:
    id_ = changeable(agent)[0]
    memory(id_).content = "the canary sings at dawn, and at dusk it sings again"
    db.session.commit()
    session = refined(agent, updates)

    undo(session)

    assert "canary" not in str(last_record(agent).data)
    assert "canary" in str(last_record(agent).sealed)


def test_a_wide_undo_names_every_session_that_it_undid(agent: Agent) -> None:
    sessions = [refined(agent, work) for work in (updates, rewrites, deletes)]

    undo(sessions[0], and_after=True, through="command line")

    record = last_record(agent)
    assert record.data["undone_sessions"] == [str(session.id) for session in sessions]
    assert (record.data["by"], record.data["and_after"]) == ("command line", True)
    assert (record.session_id, record.user_id) == (sessions[0].id, None)


def test_the_agent_is_told_in_its_journal(agent: Agent) -> None:
    session = refined(agent, deletes)

    undo(session, at=NOW)

    assert journal(agent)[0] == (
        f"An admin undid my refinement session of {session.created_at:%Y-%m-%d}: 1 brought back; "
        "13 → 14 memories, 325 → 350 tokens."
    )


def test_the_agent_is_told_of_a_wide_undo_and_of_its_own(agent: Agent) -> None:
    first = refined(agent, deletes)
    second = refined(agent, lambda session, ids: editing.delete(session, ids[1]))

    time_machine.undo_own_last(second, at=NOW)
    undo(first, and_after=True, at=NOW)
    third = refined(agent, updates)
    refined(agent, rewrites)
    undo(third, and_after=True, at=NOW)

    told = [each for each in journal(agent) if " undid " in each]
    assert [each.split(":")[0] for each in told] == [
        f"I undid my refinement session of {second.created_at:%Y-%m-%d}",
        f"An admin undid my refinement session of {first.created_at:%Y-%m-%d}",
        f"An admin undid my refinement session of {third.created_at:%Y-%m-%d} and what came after "
        "it",
    ]


def test_what_the_agent_was_told_stays_through_later_undos(agent: Agent) -> None:
    first = refined(agent, deletes)
    second = refined(agent, lambda session, ids: editing.delete(session, ids[1]))
    undo(second)
    before = journal(agent)

    undo(first, and_after=True)

    assert set(before) < set(journal(agent))


def test_tokens_that_were_undone_count_as_removed_no_more(agent: Agent) -> None:
    sessions = [
        refined(agent, deletes),
        refined(agent, lambda session, ids: editing.delete(session, ids[1])),
    ]
    assert RefinementSession.removed_recently(agent) == 50

    undo(sessions[1])
    assert RefinementSession.removed_recently(agent) == 25
    undo(sessions[0])

    assert RefinementSession.removed_recently(agent) == 0


def test_an_undo_that_fails_half_way_leaves_everything_as_it_was(
    agent: Agent, broken_row: Callable[[int], None]
) -> None:
    session = refined(agent, does_everything)
    broken_row(changeable(agent)[4])
    before = sql.snapshot()

    with pytest.raises(DBAPIError, match="the disk is full"):
        time_machine.undo(session, through="dashboard")
    db.session.rollback()

    assert sql.snapshot() == before
    assert session.undone_at is None


def test_an_undo_leaves_the_commit_to_its_caller(agent: Agent) -> None:
    session = refined(agent, does_everything)
    before = sql.snapshot()

    time_machine.undo(session, through="dashboard")
    db.session.rollback()

    assert sql.snapshot() == before


# -- preview ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("and_after", [False, True])
@pytest.mark.parametrize("work", [does_nothing, does_everything], ids=lambda work: work.__name__)
def test_a_preview_changes_nothing_and_says_what_the_undo_says(
    agent: Agent, work: Work, and_after: bool
) -> None:
    session = refined(agent, work)
    before = sql.snapshot()

    seen = time_machine.preview(session, and_after=and_after)
    db.session.commit()
    assert sql.snapshot() == before
    done = undo(session, and_after=and_after)

    assert (seen.effect, seen.sessions, seen.is_done) == (done.effect, done.sessions, False)


@pytest.mark.parametrize("work", SOME, ids=lambda work: work.__name__)
def test_the_figures_of_the_ledger_are_those_that_are_found_and_left(
    agent: Agent, work: Work
) -> None:
    duplicated(agent, "relational")
    session = refined(agent, work)
    found = agent.ledger.figures()

    effect = undo(session).effect

    assert (effect.memories_before, effect.mass_before) == found
    assert (effect.memories_after, effect.mass_after) == agent.ledger.figures()


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (updates, "1 rewritten to what they were; 14 → 14 memories, 349 → 350 tokens"),
        (deletes, "1 brought back; 13 → 14 memories, 325 → 350 tokens"),
        (merges, "2 brought back, 1 discarded; 13 → 14 memories, 350 → 350 tokens"),
        (protects, "1 no longer constitutional; 14 → 14 memories, 350 → 350 tokens"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_effect_is_told_in_figures(agent: Agent, work: Work, said: str) -> None:
    session = refined(agent, work)

    effect = time_machine.preview(session).effect

    assert str(effect) == said


def test_an_effect_tells_of_tags_that_are_taken_back(agent: Agent) -> None:
    duplicated(agent, "relational")
    session = refined(agent, does_nothing)

    effect = time_machine.preview(session).effect

    assert str(effect).startswith("1 brought back, 1 with the tags they had; 15 → 16 memories")


def test_an_effect_of_a_large_ledger_has_separators(agent: Agent) -> None:
    factories.ledger(agent, 1000)
    session = refined(agent, deletes)

    assert str(time_machine.preview(session).effect).endswith("1,325 → 1,350 tokens")


@pytest.mark.parametrize("how", [time_machine.preview, time_machine.undo_own_last])
def test_what_an_undo_refuses_the_others_refuse(
    agent: Agent, how: Callable[[RefinementSession], Undo]
) -> None:
    session = refined(agent, updates)
    memory(changeable(agent)[0]).discard()
    db.session.commit()

    with pytest.raises(UndoConflict):
        how(session)
    RefinementSession.queue(agent, "cli")
    db.session.commit()
    with pytest.raises(Refused, match="is queued"):
        how(session)


def test_a_preview_of_an_undone_session_says_that_it_is_done(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session)

    seen = time_machine.preview(session)

    assert (seen.is_done, seen.sessions) == (True, [])
    assert str(seen.effect).startswith("no memory changes")


# -- the agent's own undo --------------------------------------------------------------------------


def test_an_agent_may_undo_its_last_session(agent: Agent) -> None:
    before = rows(agent)
    session = refined(agent, does_everything)

    done = time_machine.undo_own_last(session, at=NOW)
    db.session.commit()

    assert among(rows(agent), before) == before
    assert not done.is_done
    assert (session.undone_at, session.undone_through) == (NOW, "agent")
    assert (last_record(agent).data["by"], last_record(agent).user_id) == ("agent", None)


def test_an_agent_may_not_undo_an_earlier_session(agent: Agent) -> None:
    earlier = refined(agent, updates)
    refined(agent, lambda session, ids: editing.delete(session, ids[5]))
    before = sql.snapshot()

    with pytest.raises(Refused, match="its last session only; an admin can"):
        time_machine.undo_own_last(earlier)
    db.session.commit()

    assert sql.snapshot() == before


def test_an_agent_that_undoes_its_last_session_twice_undoes_it_once(agent: Agent) -> None:
    session = refined(agent, deletes)
    time_machine.undo_own_last(session)
    db.session.commit()
    before = sql.snapshot()

    second = time_machine.undo_own_last(session)
    db.session.commit()

    assert second.is_done
    assert sql.snapshot() == before


@pytest.mark.parametrize("status", ["declined", "skipped", "failed"])
def test_a_session_without_a_loop_does_not_keep_an_agent_from_undoing_the_one_before(
    agent: Agent, status: Any
) -> None:
    session = refined(agent, deletes)
    begun(agent).finish(status, "a test")

    time_machine.undo_own_last(session)

    assert session.undone_at is not None


@pytest.mark.parametrize("status", ["declined", "skipped", "failed"])
def test_an_agent_may_bring_back_what_went_as_duplicates_before_it_declined(
    agent: Agent, status: Any
) -> None:
    refined(agent, deletes)
    factories.memory(agent, "twice said")
    twice = factories.memory(agent, "Twice said ")
    session = RefinementSession.queue(agent, "api")
    session.claim()
    remove_duplicates(session)
    session.finish(status, "a test")

    time_machine.undo_own_last(session)

    assert session.undone_at is not None
    assert not twice.discarded


def test_the_user_who_undoes_is_the_one_that_is_recorded(agent: Agent) -> None:
    someone, user = factories.user(), factories.user()
    session = refined(agent, deletes)

    undo(session, user=user)

    assert session.undone_by_id == last_record(agent).user_id == user.id != someone.id
    assert db.session.get_one(User, user.id).email in session.undo_summary
