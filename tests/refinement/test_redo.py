"""Undoing an undo: exactly, or not at all, and never more than a session may remove."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask

from refine.errors import Refused, RowAltered
from refine.extensions import db
from refine.models import Agent, AgentMemory, RefinementSession
from refine.models.ledger import images_in
from refine.refinement import redo as redoing
from refine.refinement import time_machine
from refine.refinement.redo import RedoConflict
from refine.refinement.time_machine import Undo, UndoConflict
from tests import editing, factories, sql
from tests.commands import eventually
from tests.factories import text_of
from tests.refinement import test_time_machine as undoing
from tests.refinement.test_time_machine import (
    WORKS,
    changeable,
    deletes,
    duplicated,
    last_record,
    memory,
    problems,
    protects,
    refined,
    rows,
    updates,
    waits_for_a_lock,
)

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
LATER = datetime(2027, 3, 4, 12, tzinfo=UTC)
agent = undoing.agent


def deletes_another(session: RefinementSession, ids: list[int]) -> None:
    editing.delete(session, ids[5])


def undo(session: RefinementSession, **options: Any) -> Undo:
    return undoing.undo(session, **options)


def redo(session: RefinementSession, **options: Any) -> Undo:
    """Redo as an admin, committed."""
    done = redoing.redo(session, **{"through": "dashboard", **options})
    db.session.commit()
    return done


def refused(session: RefinementSession, through: Any = "dashboard") -> str:
    """Why a redo and its preview are refused; asserts that nothing was changed."""
    db.session.commit()
    before = sql.snapshot()
    with pytest.raises(Refused) as error:
        redoing.redo(session, through=through)
    db.session.rollback()
    with pytest.raises(Refused) as foreseen:
        redoing.preview(session, through)
    db.session.rollback()
    assert sql.snapshot() == before
    assert str(foreseen.value) == str(error.value)
    return str(error.value)


def settle_for(app: Flask, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    kept = app.extensions["refine.settings"]
    monkeypatch.setitem(app.extensions, "refine.settings", replace(kept, **changed))


# -- what comes back -------------------------------------------------------------------------------


def test_a_redo_leaves_every_row_as_the_session_left_it(
    agent: Agent, subtests: pytest.Subtests
) -> None:
    for work in WORKS:
        session = refined(agent, work)
        left, removed = rows(agent), RefinementSession.removed_recently(agent)
        undo(session)
        undone = {id_: image for id_, image in rows(agent).items() if id_ not in left}

        seen = redoing.preview(session, "dashboard")
        done = redo(session)

        after = rows(agent)
        with subtests.test(work.__name__):
            assert undoing.among(after, left) == left
            assert undoing.among(after, undone) == undone  # what the agent was told
            assert seen.effect == done.effect
            assert (done.effect.memories_after, done.effect.mass_after) == (
                agent.ledger.core_totals()
            )
            assert RefinementSession.removed_recently(agent) == removed
        undo(session)
    assert problems() == []


def test_a_redone_session_can_be_undone_and_redone_again(agent: Agent) -> None:
    before = rows(agent)
    session = refined(agent, updates, deletes_another)
    left = rows(agent)

    for _ in range(2):
        undo(session)
        assert undoing.among(rows(agent), before) == before
        assert (session.redone_at, RefinementSession.removed_recently(agent)) == (None, 0)
        redo(session)
        assert undoing.among(rows(agent), left) == left
    undo(session)

    assert undoing.among(rows(agent), before) == before
    assert problems() == []


def test_duplicates_go_again_while_their_survivor_is_kept(agent: Agent) -> None:
    survivor, duplicate = duplicated(agent, "relational")
    session = refined(agent)
    undo(session)

    redo(session)

    assert (memory(survivor.id).tags, memory(duplicate.id).discarded) == (["relational"], True)


def test_a_redo_leaves_later_saves_and_changes_elsewhere(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session)
    saved = factories.memory(agent, text_of(5))
    memory(changeable(agent)[7]).set_constitutional(True)
    db.session.commit()

    redo(session)

    assert not memory(saved.id).discarded
    assert memory(changeable(agent)[7]).constitutional
    assert memory(changeable(agent)[0]).discarded


def test_the_wider_undo_goes_back_through_a_redo(agent: Agent) -> None:
    before = rows(agent)
    first = refined(agent, updates)
    second = refined(agent, deletes_another)
    undo(second)
    memory(changeable(agent)[5]).set_constitutional(True)
    memory(changeable(agent)[5]).set_constitutional(False)
    db.session.commit()
    redo(second)

    done = undo(first, and_after=True)

    assert undoing.among(rows(agent), before) == before
    assert list(done.sessions) == [first, second]
    assert (second.undone_at, second.redone_at) == (first.undone_at, None)
    assert problems() == []


# -- what it writes --------------------------------------------------------------------------------


def test_a_redo_writes_one_record_and_tells_the_agent(agent: Agent) -> None:
    user = factories.user()
    session = refined(agent, deletes)
    undo(session)
    undone = last_record(agent)

    redo(session, user=user, at=LATER)

    record = last_record(agent)
    assert record.sequence == undone.sequence + 1
    assert (record.action, record.user_id) == ("memory_refinement_rollback", user.id)
    assert (record.session_id, record.created_at) == (session.id, LATER)
    figures = {name: value for name, value in record.data.items() if name != "memories"}
    assert figures == {
        "operation": "redo",
        "by": "dashboard",
        "removed_tokens": 25,
        "undone_records": [undone.sequence],
        "image_version": 2,
        "mass_before": 350,
        "mass_after": 325,
        "memories_before": 14,
        "memories_after": 13,
    }
    assert (session.undone_at, session.undone_by_id, session.undone_through) == (None, None, None)
    assert (session.redone_at, session.redone_by_id) == (LATER, user.id)
    told = factories.journal(agent)[-1]
    assert told.content == (
        f"An admin undid the undo of my refinement session of {session.created_at:%Y-%m-%d}: "
        "1 discarded; 14 → 13 memories, 350 → 325 tokens."
    )
    assert [each["id"] for each in images_in(record.data)] == [changeable(agent)[0], told.id]


def test_protection_that_returns_is_part_of_the_effect(agent: Agent) -> None:
    session = refined(agent, protects)
    undo(session)

    assert str(redo(session).effect).startswith("1 made constitutional; ")
    assert memory(changeable(agent)[0]).constitutional


def test_a_second_redo_changes_nothing_and_says_who_redid_it(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session)
    redo(session, through="command line", at=NOW)
    before = sql.snapshot()

    again = redo(session)

    assert again.is_done
    assert sql.snapshot() == before
    assert session.redo_summary == "was redone on 2026-03-04 at 12:00 UTC by the command line"


def test_the_second_of_two_concurrent_redos_waits_and_finds_it_done(
    app: Flask, agent: Agent
) -> None:
    session_id = refined(agent, deletes).id
    undo(db.session.get_one(RefinementSession, session_id))
    read = threading.Event()

    def second() -> bool:
        with app.app_context():
            mine = db.session.get_one(RefinementSession, session_id)
            read.set()
            done = redoing.redo(mine, through="dashboard")
            db.session.commit()
            return done.is_done

    redoing.redo(db.session.get_one(RefinementSession, session_id), through="command line")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(second)
        read.wait(10)
        eventually(waits_for_a_lock)
        db.session.commit()
        is_done = other.result(10)

    redone = [each for each in factories.records(agent) if each.data.get("operation") == "redo"]
    assert is_done
    assert len(redone) == 1


# -- what it refuses -------------------------------------------------------------------------------


def test_only_an_undone_session_can_be_redone(agent: Agent) -> None:
    session = refined(agent, deletes)

    assert refused(session) == "the session is not undone, so there is nothing to redo"


def test_a_live_session_refuses_a_redo(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session)
    live = RefinementSession.queue(agent, "cli")

    assert refused(session) == (
        f"session {live.id} of this agent is queued; wait until it has ended, then redo"
    )


def test_a_memory_that_was_changed_since_refuses_and_names_the_record(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session)
    id_ = changeable(agent)[0]
    memory(id_).set_constitutional(True)
    record = last_record(agent)
    db.session.commit()

    said = refused(session)

    assert said.startswith(
        "nothing was redone, because these memories were changed after the undo: "
        f"#{id_} by record {record.sequence} (memory_constitutional_toggle, "
    )
    with pytest.raises(RedoConflict):
        redo(session)
    assert not memory(id_).discarded


def test_an_undo_together_with_what_came_after_cannot_be_undone(agent: Agent) -> None:
    session = refined(agent, deletes)
    later = refined(agent, deletes_another)
    undo(session, and_after=True)

    for each in (session, later):
        assert refused(each) == (
            "the session was undone together with everything after it, and such an undo cannot be "
            "undone"
        )


def test_a_session_and_a_redo_together_remove_no_more_than_the_floor_allows(
    agent: Agent, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_for(app, monkeypatch, rolling_floor=Decimal("0.9"))
    first = refined(agent, deletes)
    undo(first)
    refined(agent, deletes_another)

    said = refused(first)

    assert said == ("it would remove 25 tokens again, and a session may remove at most 10 now")


def test_a_redo_after_a_month_of_waiting_counts_from_the_redo_on(
    agent: Agent,
) -> None:
    session = refined(agent, deletes)
    undo(session)
    long_after = session.ended_at + timedelta(days=40)  # type: ignore[operator]

    redo(session, at=long_after)

    later = long_after + timedelta(days=29)
    assert RefinementSession.removed_recently(agent, later) == 25
    assert RefinementSession.removed_recently(agent, later + timedelta(days=2)) == 0


def test_a_redo_obeys_the_threshold_that_the_agent_has_now(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session)
    agent.refinement_threshold = 0.99

    assert refused(session) == (
        "it would remove 25 tokens again, and a session may remove at most 3 now"
    )


WORDS = "kestrel lantern harbour 4711 violet orchard meadow thimble"

THIRDS = ["amber birch cedar daisy", "ember fjord grove heron", "islet jetty knoll larch"]


def told_twice(agent: Agent) -> tuple[AgentMemory, AgentMemory]:
    """Two memories that say the same in other orders: either may go, not both."""
    first = factories.memory(agent, f"{WORDS} quartz")
    second = factories.memory(agent, f"granite {WORDS}")
    db.session.commit()
    return first, second


def test_refuses_a_redo_that_would_lose_what_its_session_removed(agent: Agent) -> None:
    first, second = told_twice(agent)
    session = refined(agent, lambda session, _: editing.delete(session, first.id))
    undo(session)
    memory(second.id).discard()

    assert refused(session) == (
        f"no memory would still say what #{first.id} said; nothing was redone"
    )


def test_refuses_a_redo_that_would_lose_what_a_later_session_removed(agent: Agent) -> None:
    first, second = told_twice(agent)
    session = refined(agent, lambda session, _: editing.delete(session, first.id))
    undo(session)
    refined(agent, lambda session, _: editing.delete(session, second.id))

    assert f"what #{first.id}, #{second.id} said" in refused(session)


def test_refuses_a_redo_that_would_lose_what_an_earlier_session_removed(agent: Agent) -> None:
    told, others = [word for word in WORDS.split() if word.isalpha()], ["north", "south"]
    first, whole, half, _less = (
        factories.memory(agent, " ".join(words))
        for words in (told, told[::-1], [*told[:5], *others], [*told[:2], *others])
    )
    db.session.commit()
    refined(agent, lambda session, _: editing.delete(session, first.id))
    session = refined(agent, lambda session, _: editing.delete(session, half.id))
    undo(session)
    memory(whole.id).discard()

    assert refused(session) == (
        f"no memory would still say what #{first.id} said; nothing was redone"
    )


def test_keeps_a_duplicate_whose_survivor_is_gone_whatever_the_settings(
    agent: Agent, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_for(app, monkeypatch, details="count")
    survivor, duplicate = duplicated(agent)
    session = refined(agent)
    undo(session)
    memory(survivor.id).discard()

    assert refused(session) == (
        f"no memory would still say what #{duplicate.id} said; nothing was redone"
    )


def test_refuses_a_redo_that_would_leave_a_removed_duplicate_in_other_words(agent: Agent) -> None:
    text = "Mira and Tomasz planted pear trees"
    planted = factories.memory(agent, text)
    db.session.commit()
    session = refined(
        agent,
        lambda session, _: editing.update(
            session, planted.id, "Tomasz and Mira planted pear trees"
        ),
    )
    undo(session)
    saved, existing = agent.ledger.remember(text, "core")
    refined(agent)

    assert not existing
    assert memory(saved.id).discarded
    assert refused(session) == (
        f"no memory would still say what #{saved.id} said; nothing was redone"
    )


def test_a_redo_leaves_what_was_saved_since_although_it_was_there(agent: Agent) -> None:
    first, _ = told_twice(agent)
    session = refined(agent, lambda session, _: editing.delete(session, first.id))
    undo(session)
    saved, existing = agent.ledger.remember(first.content, "core")
    db.session.commit()

    redo(session)

    assert not existing
    assert not memory(saved.id).discarded


def test_refuses_an_undo_that_a_redone_session_relies_on(agent: Agent) -> None:
    parts = [factories.memory(agent, text) for text in THIRDS]
    whole = factories.memory(agent, " ".join(reversed(THIRDS)))
    db.session.commit()
    ids = [part.id for part in parts]
    merges = refined(agent, lambda session, _: editing.consolidate(session, ids, " ".join(THIRDS)))
    relies = refined(agent, lambda session, _: editing.delete(session, whole.id))
    undo(relies)
    redo(relies)

    with pytest.raises(UndoConflict, match=f"#{whole.id} by record"):
        undo(merges)
    db.session.rollback()

    undo(relies)
    assert undo(merges).effect.brought_back == len(ids)


def test_does_not_rely_on_an_undo_whose_record_was_altered(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session)
    sequence = last_record(agent).sequence
    sql.run(
        "ALTER TABLE audit_logs DISABLE TRIGGER USER; "
        "UPDATE audit_logs SET data = jsonb_set(data::jsonb, '{by}', '\"nobody\"') "
        f"WHERE agent_id = {agent.id} AND sequence = {sequence}; "
        "ALTER TABLE audit_logs ENABLE TRIGGER USER"
    )

    with pytest.raises(RowAltered):
        redoing.redo(session, through="dashboard")


# -- whose undo it was -----------------------------------------------------------------------------


def test_only_the_agent_redoes_what_it_undid_itself(agent: Agent) -> None:
    session = refined(agent, deletes)
    time_machine.undo_own_last(session)

    for through in ("dashboard", "command line"):
        assert refused(session, through) == (
            "the agent itself undid the session, and nobody else can redo it"
        )
    assert not session.can_redo

    redoing.redo_own_last(session)

    assert (session.undone_at, session.redone_through) == (None, "agent")
    assert factories.journal(agent)[-1].content.startswith("I undid the undo of my refinement")


def test_the_agent_does_not_redo_what_an_admin_undid(agent: Agent) -> None:
    session = refined(agent, deletes)
    undo(session)

    assert refused(session, "agent") == ("an admin undid the session, and nobody else can redo it")
    assert session.can_redo


def test_an_undo_that_changed_nothing_is_not_redone(agent: Agent) -> None:
    session = refined(agent)
    # as earlier versions undid it
    plan = Undo(session, [session], time_machine.effect_of(agent, []))
    session.undone_at, session.undone_through = NOW, "dashboard"
    data = {"operation": "undo", "and_after": False, "undone_sessions": [str(session.id)]}
    time_machine.carry_out(plan, data, "An admin undid it.", user=None, at=NOW)

    assert refused(session) == "the undo changed no memory, so there is nothing to redo"
    assert not session.can_redo


def test_an_agent_redoes_only_its_last_session(agent: Agent) -> None:
    earlier = refined(agent, deletes)
    time_machine.undo_own_last(earlier)
    refined(agent, updates)

    with pytest.raises(Refused, match="may redo only its last session with changes$"):
        redoing.redo_own_last(earlier)
