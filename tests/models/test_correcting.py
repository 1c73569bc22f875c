"""An agent corrects and forgets memories of its own, outside sessions, within limits by day."""

from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import select

from refine import clock
from refine.errors import NotFound, Refused
from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, RefinementSession
from refine.models.correcting import correct, forget
from refine.models.runs.session.scheduling import Candidates
from refine.refinement import time_machine
from refine.rules.retention import removable_under_threshold
from refine.tools import RefinementTool
from tests import editing, factories
from tests.chains import problems

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
VERBS = {"correct": lambda agent, id_: correct(agent, id_, "of another"), "forget": forget}


def days_ago() -> dict[str, datetime]:
    return dict.fromkeys(("recorded_at", "updated_at"), clock.now() - 2 * DAY)


def aged(agent: Agent, *tokens: int) -> list[AgentMemory]:
    """Memories that the agent has had for days."""
    return factories.ledger(agent, *tokens, **days_ago())


@pytest.fixture
def agent(app):
    agent = factories.agent()
    aged(agent, *[25] * 7)
    number = "Mira's number is 555 0142, she said, and to call her in the evening"
    factories.memory(agent, number, **days_ago())
    db.session.commit()
    return agent


def number(agent: Agent) -> AgentMemory:
    return agent.ledger.matching(agent.ledger.kept(), "number")[0]


def notes(agent: Agent) -> list[str]:
    mine = select(AgentMemory).where(AgentMemory.agent_id == agent.id, AgentMemory.is_note())
    return [note.content for note in db.session.scalars(mine.order_by(AgentMemory.id))]


def last_record(action: str) -> AuditLog:
    mine = select(AuditLog).where(AuditLog.action == action).order_by(AuditLog.id.desc())
    return db.session.scalars(mine).first()


# -- correcting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["wrong", "outdated"])
def test_a_correction_takes_the_place_of_what_it_retires(agent, reason):
    old, at = number(agent), clock.now()
    old.tags = ["relational"]

    new = correct(agent, old.id, " Mira's number is 555 0143 ", reason, at)

    assert (new.content, new.tags, new.memory_type) == (
        "Mira's number is 555 0143",
        ["relational"],
        "core",
    )
    assert new.created_at == (at if reason == "outdated" else old.created_at)
    assert (old.discarded, old.retired_reason, old.replaced_by_id) == (True, reason, new.id)
    assert db.session.scalars(agent.ledger.retired()).all() == [old]
    assert problems() == []


def test_a_correction_that_says_the_same_sets_the_old_text_aside(agent):
    old = number(agent)

    new = correct(agent, old.id, "Mira's number is 555 0142: call in the evening", "same")

    assert (old.discarded, old.retired_reason) == (True, None)
    assert number(agent) == new


def test_a_correction_is_recorded_and_told_without_its_words(agent):
    old = number(agent)

    new = correct(agent, old.id, "Mira's number is 555 0143")

    record = last_record("memory_corrected")
    assert (record.auditable_id, record.user_id) == (str(old.id), None)
    assert record.data["reason"] == "wrong"
    assert "555 0" not in str(record.data)
    assert notes(agent) == [
        f"I corrected memory #{old.id} (wrong): it is #{new.id} now. What it said can be restored."
    ]


def test_what_was_corrected_can_be_restored(agent):
    old = number(agent)
    correct(agent, old.id, "Mira's number is 555 0143")

    old.restore()

    assert (old.is_kept_core, old.retired_reason, old.replaced_by_id) == (True, None, None)
    assert problems() == []


def test_a_journal_entry_corrected_twice_stays_one_and_retires_both_texts(agent):
    first = factories.entry(agent, "met Mira on Monday")
    second = correct(agent, first.id, "met Mira on Tuesday")
    third = correct(agent, second.id, "met Mira on Wednesday")

    assert (first.replaced_by_id, second.replaced_by_id) == (second.id, third.id)
    assert (first.discarded, second.discarded, third.memory_type) == (True, True, "journal")
    assert problems() == []


# -- forgetting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["outdated", "wrong"])
def test_what_is_forgotten_is_retired_recorded_and_told(agent, reason):
    memory = number(agent)

    forget(agent, memory.id, reason)

    assert (memory.discarded, memory.retired_reason, memory.replaced_by_id) == (True, reason, None)
    record = last_record("memory_forgotten")
    assert record.data["removed_tokens"] == memory.token_estimate
    assert notes(agent) == [
        f"I forgot memory #{memory.id} ({reason}). What it said can be restored."
    ]
    assert problems() == []


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"constitutional": True}, "Cannot {} constitutional memory #{}"),
        ({"tags": ["voice"]}, "Cannot {} immutable memory #{}"),
        ({"memory_type": "journal", "source": "note"}, "Memory #{1} not found"),
        ({"discarded_at": clock.now()}, "Memory #{1} not found"),
    ],
)
def test_what_is_locked_gone_or_a_note_stays_as_it_is(agent, fields, error):
    memory = factories.memory(agent, "said once", **fields)
    for verb, change in VERBS.items():
        with pytest.raises((Refused, NotFound), match=error.format(verb, memory.id)):
            change(agent, memory.id)


def test_another_agents_memory_is_not_found(agent):
    others = factories.memory(factories.agent(), "said elsewhere")

    with pytest.raises(NotFound, match=f"Memory #{others.id} not found"):
        forget(agent, others.id)


def test_a_text_that_is_kept_already_corrects_nothing(agent):
    memory, other = number(agent), factories.memory(agent, "Mira has no telephone")

    for content, id_ in ((memory.content, memory.id), ("mira has no  telephone", other.id)):
        with pytest.raises(Refused, match=f"Memory #{id_} has exactly this content already"):
            correct(agent, memory.id, content)


# -- the breaker by day ----------------------------------------------------------------------------


def test_no_more_than_a_quarter_goes_in_a_day_and_the_refusal_says_when(app):
    agent, at = factories.agent(), clock.now()
    first, second, third, *_ = aged(agent, *[25] * 10)
    forget(agent, first.id, at=at)
    forget(agent, second.id, at=at + HOUR)

    with pytest.raises(Refused) as refused:
        forget(agent, third.id, at=at + 2 * HOUR)

    assert str(refused.value) == (
        "Nothing was changed: this would remove 25 tokens, and at most 12 may go now; "
        f"more from {at + DAY:%Y-%m-%d %H:%M} UTC"
    )
    forget(agent, third.id, at=at + DAY + timedelta(seconds=1))


def test_a_memory_that_is_too_large_by_itself_is_refused_without_a_time(app):
    agent = factories.agent()
    memory, *_ = aged(agent, 30, 25, 25)

    with pytest.raises(Refused, match="remove 30 tokens, and at most 20 may go now$"):
        forget(agent, memory.id)


@pytest.mark.parametrize(
    ("content", "removed"),
    [("Mira's number is 555 0143, she said, and to call in the evening", 1), ("Aix " * 17, 17)],
)
def test_a_correction_that_speaks_of_something_else_counts_as_forgetting(agent, content, removed):
    correct(agent, number(agent).id, content)

    assert RefinementSession.removed_recently(agent) == removed


def test_what_was_saved_today_is_free_and_pays_for_nothing(app):
    agent, at = factories.agent(), clock.now()
    first, second, *_ = aged(agent, *[25] * 4)
    today = factories.ledger(agent, *[25] * 40, recorded_at=at)
    forget(agent, first.id, at=at)

    for memory in today[1:]:
        with pytest.raises(Refused, match="at most 0 may go now; more from"):
            forget(agent, second.id, at=at + HOUR)
        forget(agent, memory.id, at=at + HOUR)

    assert RefinementSession.removed_recently(agent, at + HOUR) == 25
    forget(agent, today[0].id, at=at + DAY)
    with pytest.raises(Refused, match="remove 25 tokens, and at most 0"):
        forget(agent, second.id, at=at + DAY + HOUR)


def test_an_agent_forgets_and_corrects_all_of_its_first_day(app):
    agent = factories.agent()
    memory, other = factories.ledger(agent, 25, 25)

    forget(agent, other.id)
    forget(agent, correct(agent, memory.id, factories.text_of(9)).id)

    assert agent.core_token_usage == 0


@pytest.mark.parametrize("by", ["correction", "another correction", "session"])
def test_what_took_the_place_of_an_old_memory_today_counts_as_that(app, by):
    agent = factories.agent()
    memories = aged(agent, *[25] * 4)
    if by == "session":
        session = factories.session(agent)
        new = editing.update(session, memories[0].id, factories.text_of(24), reason="outdated")
        session.finish("incomplete", "enough")
    else:
        new = correct(agent, memories[0].id, factories.text_of(60), "same")
    if by == "another correction":
        new = correct(agent, new.id, factories.text_of(61))

    forget(agent, new.id)

    with pytest.raises(Refused, match="remove 25 tokens, and at most"):
        forget(agent, memories[1].id)


def test_a_correction_of_what_stands_again_is_free(app):
    agent = factories.agent()
    memory, other, *_ = aged(agent, *[25] * 4)
    new = correct(agent, memory.id, factories.text_of(60))
    memory.restore()

    forget(agent, new.id)
    forget(agent, other.id)


def test_a_correction_counts_what_it_shortens(app):
    agent = factories.agent()
    memory, *_ = aged(agent, 30, 30, 30)

    with pytest.raises(Refused, match="remove 26 tokens"):
        correct(agent, memory.id, factories.text_of(4))
    correct(agent, memory.id, factories.text_of(8))


@pytest.mark.parametrize("times", [1, 2])
def test_what_was_restored_no_longer_counts_though_it_goes_again(app, times):
    agent = factories.agent()
    first, second, *_ = aged(agent, *[25] * 8)
    for _ in range(times):
        forget(agent, first.id)
        first.restore()
    forget(agent, first.id)

    forget(agent, second.id)

    assert RefinementSession.removed_recently(agent) == 50


def test_the_rolling_floor_counts_what_was_forgotten_for_corrections_and_sessions(app):
    agent, at = factories.agent(), clock.now()
    memories = aged(agent, *[25] * 8)
    later = at + 5 * DAY
    eroded = select(Agent.id).where(RefinementSession.is_eroded(later))
    assert db.session.scalars(eroded).all() == []
    for day, memory in enumerate(memories[:4]):
        forget(agent, memory.id, at=at + day * DAY)
    db.session.commit()

    assert RefinementSession.removed_recently(agent, later) == 100
    with pytest.raises(Refused, match="0 may go now; more when what went in the last 30 days"):
        forget(agent, memories[5].id, at=later)
    assert Candidates([agent], later).removed_tokens(agent) == 100
    assert db.session.scalars(eroded).all() == [agent.id]
    with clock.ahead(5 * DAY):
        assert RefinementSession.erosion_reason(agent) is not None
        assert factories.session(agent).removable_tokens == 0


def test_what_sessions_removed_leaves_less_for_corrections(app):
    agent = factories.agent()
    memories = aged(agent, *[25] * 8)
    at = editing.deleted_from(agent, *memories[:2]).ended_at + 2 * DAY
    for memory in memories[2:4]:
        forget(agent, memory.id, at=at)
        at += 2 * DAY

    with pytest.raises(Refused, match="more when what went in the last 30 days"):
        forget(agent, memories[4].id, at=at)


def test_an_agent_forgets_while_a_session_runs_and_the_floor_holds_for_both(app):
    agent = factories.agent()
    agent.refinement_threshold = Decimal("0.01")
    memories = aged(agent, *[25] * 8)
    tool = RefinementTool(factories.session(agent))
    tool.execute(action="delete", id=memories[0].id)
    assert tool.left["tokens_left"] == 75

    for memory, left in zip(memories[1:3], (50, 25), strict=True):
        forget(agent, memory.id)
        db.session.commit()
        assert tool.execute(action="search", query="nowhere")["tokens_left"] == left

    assert tool.execute(action="delete", id=memories[3].id)["tokens_left"] == 0
    with pytest.raises(Refused, match="0 may go now; more when what went in the last 30 days"):
        forget(agent, memories[4].id)
    last = tool.execute(action="delete", id=memories[4].id)
    assert (last["type"], agent.core_token_usage) == ("refinement_rolled_back", 150)
    assert problems() == []


def test_forgetting_takes_nothing_from_a_session_where_the_floor_has_room_for_both(agent):
    session = factories.session(agent)

    forget(agent, number(agent).id)

    assert session.removable_tokens == removable_under_threshold(
        session.mass_before, Decimal(".75")
    )


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_live_session_has_made_waits_for_its_end(agent, verb):
    session, said = factories.session(agent), number(agent).content
    new = editing.update(session, number(agent).id, said.replace(", she said", ""), reason="wrong")

    with pytest.raises(Refused, match=f"Cannot {verb} memory #{new.id} before the session"):
        VERBS[verb](agent, new.id)
    session.finish("incomplete", "enough")
    VERBS[verb](agent, new.id)

    assert new.discarded


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_day_never_takes_more_than_the_threshold_lets_go(app, data):
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=2, max_size=8))
    tokens = st.integers(1, 60)
    agent, at = factories.agent(), clock.now()
    # how much of each old memory still stands, in it or in its corrections; 0 for new ones
    standing = {memory.id: memory.token_estimate for memory in aged(agent, *sizes)}
    for step in data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=12)):
        at += timedelta(minutes=step)
        of = data.draw(st.sampled_from(sorted(standing)))
        text = factories.text_of(data.draw(tokens))
        match data.draw(st.sampled_from(["save", "forget", "correct"])):
            case "save":
                standing.setdefault(agent.ledger.remember(text, "core", at=at)[0].id, 0)
            case "forget":
                with suppress(Refused, NotFound):
                    forget(agent, of, at=at)
                    standing[of] = 0
            case "correct":
                with suppress(Refused, NotFound):
                    new = correct(agent, of, text, at=at)
                    standing[new.id] = min(standing[of], new.token_estimate)
                    standing[of] = 0
        assert 4 * sum(standing.values()) >= 3 * sum(sizes)
    db.session.rollback()


# -- sessions and undoing --------------------------------------------------------------------------


def test_a_live_session_notices_what_was_corrected_meanwhile(agent):
    old = number(agent)
    tool = RefinementTool(factories.session(agent))
    new = correct(agent, old.id, old.content.replace("0142", "0143"))
    db.session.commit()

    gone = tool.execute(action="delete", id=old.id)
    unseen = tool.execute(action="delete", id=new.id)

    assert f"Memory #{old.id} not found" in gone["error"]
    assert f"Memory #{new.id} was not there when this session began" in unseen["error"]


def undone(session: RefinementSession) -> time_machine.Undo:
    """Undo the session and all after it; the narrower undo does not bring back more."""
    db.session.commit()
    with suppress(time_machine.UndoConflict):
        time_machine.preview(session)
    done = time_machine.undo(session, through="command line", and_after=True)
    db.session.commit()
    assert problems() == []
    return done


def test_a_correction_stands_in_the_way_of_an_undo_and_stays_in_the_wider_one(agent):
    session = factories.session(agent)
    old = number(agent)
    said = old.content
    editing.update(session, old.id, "Mira's number is 555 0142, she said: call her in the evening")
    other = editing.delete(session, db.session.scalars(agent.ledger.core()).first().id)
    session.finish("incomplete", "enough")
    new = correct(agent, old.id, "Mira's number is 555 0143")
    db.session.commit()

    with pytest.raises(time_machine.UndoConflict, match="memory_corrected"):
        time_machine.undo(session, through="command line")
    undone(session)

    assert (new.discarded, old.discarded, old.retired_reason) == (False, True, "wrong")
    assert (old.content, other.discarded) == (said, False)


@pytest.mark.parametrize("verb", VERBS)
def test_a_wide_undo_does_not_bring_back_what_was_merged_into_what_is_forgotten(agent, verb):
    copy = factories.memory(agent, number(agent).content + "s", **days_ago())
    sources = [number(agent), copy]
    session = factories.session(agent)
    merged = editing.consolidate(session, [each.id for each in sources], copy.content[:-1])
    other = db.session.scalars(agent.ledger.core()).first()
    editing.delete(session, other.id)
    session.finish("incomplete", "enough")
    removed = merged.token_estimate + session.removed_tokens
    VERBS[verb](agent, merged.id)

    undone(session)

    assert [each.discarded for each in (*sources, merged, other)] == [True, True, True, False]
    kept = agent.core_token_usage
    assert RefinementSession.removed_recently(agent) <= removed - other.token_estimate
    assert kept + RefinementSession.removed_recently(agent) >= session.mass_before


@pytest.mark.parametrize("and_after", [False, True])
def test_an_undo_brings_back_no_exact_copy_of_what_was_forgotten_since(agent, and_after):
    memory, other = number(agent), db.session.scalars(agent.ledger.core()).first()
    copy = factories.memory(agent, memory.content, **days_ago())
    session = editing.deleted_from(agent, copy, other)
    forget(agent, memory.id)

    time_machine.undo(session, through="command line", and_after=and_after)

    assert [each.discarded for each in (memory, copy, other)] == [True, True, False]
    assert session.counted("tokens_gone") == copy.token_estimate


def test_an_undo_that_would_bring_back_nothing_but_what_was_forgotten_is_refused(agent):
    memory = db.session.scalars(agent.ledger.core()).first()
    session = editing.deleted_from(agent, memory)
    memory.restore()
    forget(agent, memory.id)

    with pytest.raises(Refused, match=f"was erased or forgotten \\(#{memory.id}\\)"):
        undone(session)


def test_a_wide_undo_takes_back_what_was_restored_since_it_was_forgotten(agent):
    memory = number(agent)
    session = factories.session(agent)
    editing.protect(session, memory.id)
    memory.set_constitutional(False)
    session.finish("incomplete", "enough")
    forget(agent, memory.id)
    memory.restore()

    undone(session)

    assert memory.is_kept_core


def test_a_save_may_rely_on_a_correction_that_no_undo_takes_back(agent):
    new = correct(agent, number(agent).id, "Mira's number is 555 0143")

    assert agent.ledger.remember("Mira's number is 555 0143", "core") == (new, True)
