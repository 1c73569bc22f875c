"""A memory is erased for good: asked for twice, a day apart; nothing that is left can be read."""

import base64
import json
from datetime import timedelta
from decimal import Decimal
from functools import partial

import pytest
from sqlalchemy import inspect, select, text

from refine import clock
from refine.access import reading
from refine.errors import Erased, NotFound, Refused, SealingError
from refine.extensions import db
from refine.models import (
    Agent,
    AgentMemory,
    ApiToken,
    AuditLog,
    IdempotencyKey,
    MemoryTask,
    RefinementSession,
)
from refine.models.clients.idempotency_key import StoredResponse
from refine.models.correcting import correct, forget
from refine.models.erasing import LAPSES_AFTER, erase
from refine.models.keys import content_key_place
from refine.models.ledger.history import left_by_records
from refine.models.ledger.image import changes_in
from refine.models.ledger.ledger import removed_outside_sessions
from refine.refinement import time_machine
from refine.sealing import DataKey, Place
from tests import editing, factories, sql
from tests.chains import problems
from tests.privacy import traces

DAY = timedelta(days=1)
CANARY = "c4n4ry"


@pytest.fixture(autouse=True)
def since_yesterday(monkeypatch):
    """Each test begins a day ago: a memory that it erases is gone today."""
    monkeypatch.setattr(clock, "_ahead", -DAY)


@pytest.fixture
def agent(app):
    agent = factories.agent()
    factories.ledger(agent, *[25] * 9, recorded_at=clock.now() - 2 * DAY)
    db.session.commit()
    return agent


def saved(agent: Agent, content: str = f"the {CANARY} sings") -> AgentMemory:
    return agent.ledger.remember(content, "core")[0]


def erased(memory: AgentMemory, by="command line", **options):
    """Ask twice, a day apart."""
    erase(memory.agent, memory.id, by, **options)
    clock._ahead += DAY
    done = erase(memory.agent, memory.id, by, **options)
    db.session.commit()
    return done


def first_saved() -> AuditLog:
    saves = select(AuditLog).where(AuditLog.action == "memory_saved").order_by(AuditLog.id)
    return db.session.scalars(saves.limit(1)).one()


# -- asked for twice -------------------------------------------------------------------------------


def test_the_first_request_is_recorded_and_told_and_nothing_happens_yet(agent):
    memory, at = saved(agent), clock.now()

    planned = erase(agent, memory.id, "agent", at=at)

    assert planned == ([memory.id], [], at + DAY)
    assert CANARY in memory.content
    record = db.session.scalars(select(AuditLog).order_by(AuditLog.id)).all()[-2]
    assert (record.action, record.auditable_id) == ("memory_erasure_requested", str(memory.id))
    note = db.session.scalars(select(AgentMemory).where(AgentMemory.is_note())).one().content
    assert note.startswith(f"I asked to erase for good: #{memory.id}. From {at + DAY:%Y-%m-%d}")


def test_a_second_request_within_a_day_is_refused_and_says_when(agent):
    memory, at = saved(agent), clock.now()
    erase(agent, memory.id, "agent", at=at)

    with pytest.raises(Refused, match=f"can be erased from {at + DAY:%Y-%m-%d %H:%M} UTC on"):
        erase(agent, memory.id, "agent", at=at + DAY - timedelta(seconds=1))

    assert not memory.is_erased


def test_a_request_lapses_and_one_with_descendants_is_another(agent):
    memory, at = saved(agent), clock.now()
    erase(agent, memory.id, "agent", at=at)

    for later, with_descendants in ((LAPSES_AFTER, False), (2 * DAY, True)):
        again = erase(agent, memory.id, "agent", with_descendants=with_descendants, at=at + later)
        assert again.from_at == at + later + DAY


def test_the_second_request_erases_and_tells_the_agent(agent):
    memory = saved(agent)

    assert erased(memory) == ([memory.id], [], None)

    assert (memory.is_erased, memory.discarded, memory.retired_reason) == (True, True, None)
    notes = db.session.scalars(select(AgentMemory).where(AgentMemory.is_note())).all()
    assert notes[-1].content == (
        f"An operator erased for good: #{memory.id}. Nobody can read or restore them, nor what I "
        "said in sessions since the first of them was saved."
    )
    with pytest.raises(Refused, match="was erased for good already"):
        erase(agent, memory.id, "agent")


@pytest.mark.parametrize("change", ["by another", "more goes along"])
def test_a_request_by_another_or_for_more_than_was_asked_begins_anew(agent, change):
    memory, at = saved(agent), clock.now()
    erase(agent, memory.id, "agent", at=at)
    if change == "more goes along":
        factories.memory(agent, memory.content, discarded_at=at)

    by = "command line" if change == "by another" else "agent"
    again = erase(agent, memory.id, by, at=at + 2 * DAY)

    assert (again.from_at, memory.is_erased) == (at + 3 * DAY, False)
    if change == "by another":
        assert erase(agent, memory.id, "agent", at=at + 2 * DAY).from_at is None


@pytest.mark.parametrize("by", ["agent", "command line"])
def test_a_note_of_refine_is_neither_erased_nor_goes_along(agent, by):
    agent.ledger.add_journal_note(f"the {CANARY} sings", clock.now())
    note = db.session.scalars(select(AgentMemory).where(AgentMemory.is_note())).one()

    with pytest.raises(NotFound, match=f"Memory #{note.id} not found; nothing was changed"):
        erase(agent, note.id, by)
    assert erased(saved(agent), with_descendants=True).descendants == []
    assert not note.is_erased


def test_a_locked_or_unknown_memory_and_a_live_session_are_in_the_way(agent):
    locked = factories.memory(agent, "a vow", constitutional=True)

    with pytest.raises(Refused, match=f"Cannot erase constitutional #{locked.id}: lift the flag"):
        erase(agent, locked.id, "agent")
    with pytest.raises(NotFound):
        erase(agent, factories.memory(factories.agent()).id, "agent")
    factories.session(agent)
    with pytest.raises(Refused, match="is running; wait until it has ended"):
        erase(agent, locked.id, "agent")


def test_an_agent_erases_no_more_than_it_may_forget_in_a_day(app):
    agent = factories.agent()
    memory, *_ = factories.ledger(agent, 30, 25, 25)
    at = clock.now()
    for by in ("agent", "command line"):
        erase(agent, memory.id, by, at=at)

    with pytest.raises(Refused, match="this would remove 30 tokens, and at most 20"):
        erase(agent, memory.id, "agent", at=at + DAY)
    erase(agent, memory.id, "command line", at=at + DAY)

    assert db.session.scalar(removed_outside_sessions(agent.id, at)) == 30


def test_what_an_operator_erases_counts_for_the_floor_alone(app):
    agent, at = factories.agent(), clock.now()
    memories = factories.ledger(agent, *[25] * 8, recorded_at=at - 2 * DAY)
    for memory in memories[:3]:
        erase(agent, memory.id, "command line", at=at)
        erase(agent, memory.id, "command line", at=at + DAY)

    forget(agent, memories[3].id, at=at + DAY)

    with pytest.raises(Refused, match="at most 0 may go now; more when what went in the last 30"):
        forget(agent, memories[4].id, at=at + DAY)


@pytest.mark.parametrize("way", ["itself", "copy", "descendant"])
def test_only_an_operator_erases_what_a_tag_locks(agent, way):
    memory = locked = saved(agent)
    if way == "itself":
        memory.tags = ["voice"]
    elif way == "copy":
        locked = factories.memory(agent, memory.content, tags=["voice"], discarded_at=clock.now())
    else:
        locked = correct(agent, memory.id, f"the {CANARY} sang")
        locked.tags = ["voice"]
    which = {"with_descendants": way == "descendant"}

    with pytest.raises(Refused, match=f"Cannot erase immutable #{locked.id}: only an operator"):
        erase(agent, memory.id, "agent", **which)
    erased(memory, **which)

    assert (memory.is_erased, locked.is_erased) == (True, True)


@pytest.mark.parametrize(
    ("kind", "handed_over", "is_running", "is_in_the_way"),
    [
        ("reflection", DAY, True, True),
        ("reflection", DAY, False, False),
        ("extraction", DAY, True, True),
        ("extraction", DAY, False, False),
        ("extraction", -DAY, False, True),
    ],
)
def test_what_could_write_the_words_anew_must_end_first(
    agent, kind, handed_over, is_running, is_in_the_way
):
    memory, at = saved(agent), clock.now()
    erase(agent, memory.id, "command line", at=at)
    make = {"reflection": MemoryTask.reflect, "extraction": factories.extraction}[kind]
    task = make(agent, "cli", at=at + handed_over)
    if is_running:
        task.claim(at + DAY)
    again = partial(erase, agent, memory.id, "command line", at=at + 2 * DAY)

    if is_in_the_way:
        with pytest.raises(Refused, match=f"{kind} {task.id} of this agent is {task.status} and"):
            again()
        task.finish("completed", at=at + 2 * DAY)
    again()

    assert memory.is_erased


# -- what goes along -------------------------------------------------------------------------------


def test_earlier_versions_and_copies_go_along_and_descendants_are_listed(agent):
    first = saved(agent)
    second = correct(agent, first.id, f"the {CANARY} sang")
    long_ago = clock.now() - DAY
    copy = factories.memory(agent, f"The {CANARY}  sang", discarded_at=long_ago)
    kept_copy = factories.memory(agent, f"the {CANARY} sings")
    third = correct(agent, second.id, f"the {CANARY} sang to us")
    fourth = correct(agent, third.id, f"the {CANARY} sang to all of us")

    done = erased(second)

    assert done == (
        [first.id, second.id, copy.id],
        sorted([kept_copy.id, third.id, fourth.id]),
        None,
    )
    assert copy.discarded_at == long_ago
    assert [each.is_erased for each in (first, second, copy, kept_copy, third, fourth)] == [
        *[True] * 3,
        *[False] * 3,
    ]
    assert erased(kept_copy, with_descendants=True).ids == [kept_copy.id]
    assert erased(fourth).ids == [third.id, fourth.id]
    assert problems() == []


def merge_of_two(agent: Agent) -> tuple[AgentMemory, AgentMemory, AgentMemory, RefinementSession]:
    """Two memories, what an ended session made of them, and the session."""
    sources = [saved(agent, f"the {CANARY} sings{end}") for end in ("", " each day")]
    session = factories.session(agent)
    merged = editing.consolidate(
        session, [each.id for each in sources], f"each day the {CANARY} sings"
    )
    session.finish("incomplete", "enough")
    return *sources, merged, session


def test_what_was_merged_goes_with_the_result_and_the_result_with_its_descendants(agent):
    source, other, merged, _ = merge_of_two(agent)

    assert erased(source).descendants == [merged.id]
    assert CANARY in merged.content
    assert erased(merged, with_descendants=True).ids == [other.id, merged.id]
    assert problems() == []


def test_the_kept_sources_of_an_undone_merge_are_no_descendants(agent):
    source, _, merged, session = merge_of_two(agent)
    time_machine.undo(session, through="command line")

    assert erase(agent, source.id, "agent").descendants == [merged.id]
    assert erased(merged) == ([merged.id], [], None)


# -- nothing is left -------------------------------------------------------------------------------


def everything_readable(agent: Agent) -> str:
    """All columns of all tables, with all that the keys that are left open."""
    hashed = agent.data_key().mac(f"the {CANARY} sings", "agent_memories.content_hash")
    rows = [said.decode() for said in traces.of_tables().values()]
    return "\n".join([*rows, *traces.of_opened()]).replace(hashed, CANARY)


def test_no_column_and_no_key_that_is_left_says_a_word_of_it(agent):
    memory = saved(agent)
    memory.extra = f'{{"of": "{CANARY}"}}'
    forget(agent, memory.id)
    memory.restore()
    declined = RefinementSession.queue(agent, "api")
    declined.consent_reply = f"NO, the {CANARY} is to stay as it is."
    declined.finish("declined", "the agent declined")
    session = factories.session(agent)
    session.consent_reply = f"YES, the {CANARY} is glad."
    editing.complete(session, f"I thought of the {CANARY}.")
    token, _ = ApiToken.mint(account=agent.account, agent=agent)
    answer = StoredResponse(201, f"the {CANARY} sings", None)
    IdempotencyKey.reserve(token, "once", f"the {CANARY} sings")[0].store(answer)
    db.session.commit()
    assert everything_readable(agent).count(CANARY) > 9

    erased(memory)

    assert CANARY not in everything_readable(agent)
    assert problems() == []


def test_the_records_of_an_erased_memory_do_not_open_under_any_other_key(agent):
    memory, other = saved(agent), saved(agent, "another")
    erased(memory)
    record = first_saved()
    key = agent.data_key()

    (inner,) = _inner(key.open(record.sealed_text, Place("audit_logs.sealed", record.id)))

    assert record.sealed == {"memories": []}
    assert changes_in(record.data, record.sealed) == []
    place = Place("audit_logs.sealed", f"{record.id}, memory {memory.id}")
    for left in (key, other.data_key(), DataKey(b"k" * 32)):
        with pytest.raises(SealingError):
            left.open(inner, place)


def _inner(opened: str) -> list[bytes]:
    return [base64.b64decode(each["sealed"]) for each in json.loads(opened)["memories"]]


def test_the_keyed_hashes_and_kept_answers_go_too(agent):
    memory = factories.memory(agent, "of the file", source="mem0", source_id="0a" * 32)
    db.session.commit()
    token, _ = ApiToken.mint(account=agent.account, agent=agent)
    db.session.flush()
    IdempotencyKey.reserve(token, "once", "POST /memories")

    erased(memory)

    assert (memory.content_hash, memory.source_id, memory.sealed_extra) == ("", None, None)
    assert db.session.scalars(select(IdempotencyKey)).all() == []
    assert "0a0a" not in str([each.data for each in db.session.scalars(select(AuditLog))])


# -- what reads it ---------------------------------------------------------------------------------


def test_an_erased_memory_can_be_neither_read_nor_changed(agent):
    memory = saved(agent)
    erased(memory)

    with pytest.raises(Erased, match=f"memory #{memory.id} was erased for good"):
        assert memory.content
    for change in (memory.restore, memory.discard, lambda: memory.set_constitutional(True)):
        with pytest.raises(Refused, match=f"Memory #{memory.id} was erased for good"):
            change()
    assert not agent.ledger.is_quoted_by(CANARY, "")


def test_a_grant_shows_the_rest_and_says_that_it_was_erased(agent):
    memory, other = saved(agent), saved(agent, "another")
    erased(memory)
    reader = factories.user(account=agent.account)
    grant = factories.live_grant(agent, reader)
    db.session.commit()
    mine = select(AgentMemory).order_by(AgentMemory.id)

    assert list(reading.memories(grant.id, reader, [memory.id, other.id])) == [other.id]
    assert reading.search(grant.id, reader, "another", mine, rows=9).count == 1
    with pytest.raises(reading.NoAccess, match="erased for good"):
        reading.versions(grant.id, reader, memory.id)
    record = first_saved()
    assert reading.read_record(grant.id, reader, record.id).changes == []


def test_an_undo_is_refused_when_all_that_it_would_restore_was_erased(agent):
    one, other, *_ = db.session.scalars(agent.ledger.core())
    session = editing.deleted_from(agent, one, other)
    for memory in (one, other):
        erased(memory)

    with pytest.raises(Refused, match=f"was erased or forgotten \\(#{one.id}, #{other.id}\\)"):
        time_machine.undo(session, through="command line")
    assert session.undone_at is None
    assert RefinementSession.removed_recently(agent) == 50


def test_what_an_undo_cannot_restore_still_counts_for_the_floor(app):
    agent = factories.agent()
    agent.refinement_threshold = Decimal("0.01")
    memories = factories.ledger(agent, *[25] * 4)
    session = editing.deleted_from(agent, *memories[:2])
    erased(memories[0])

    time_machine.undo(session, through="command line")

    db.session.commit()
    assert agent.core_token_usage == 75
    assert RefinementSession.removed_recently(agent) == 25
    forget(agent, memories[1].id)
    db.session.commit()
    eroded = select(Agent.id).where(RefinementSession.is_eroded(clock.now()))
    assert db.session.scalars(eroded).all() == [agent.id]
    assert RefinementSession.erosion_reason(agent) is not None
    assert problems() == []


@pytest.mark.parametrize("and_after", [False, True])
def test_an_undo_leaves_an_erased_memory_out(agent, and_after):
    memory, other, *_ = db.session.scalars(agent.ledger.core())
    session = editing.deleted_from(agent, memory, other)
    erased(memory)

    time_machine.undo(session, through="command line", and_after=and_after)

    assert (memory.discarded, other.discarded) == (True, False)
    assert problems() == []


# -- verification ----------------------------------------------------------------------------------


def test_a_key_that_is_gone_without_a_record_is_found(agent):
    memory = factories.memory(agent, "written without a record")
    db.session.commit()
    assert problems() == []
    db.session.execute(text("SET LOCAL session_replication_role = replica"))
    memory._erase(clock.now())
    db.session.commit()

    assert problems() == [f"agent {agent.id}: memory {memory.id} was erased without a record"]


def test_an_erased_row_that_was_put_back_is_found(agent):
    memory = saved(agent)
    db.session.commit()
    sql.run("CREATE TABLE kept AS SELECT * FROM agent_memories")
    erased(memory)

    columns = [each.name for each in inspect(AgentMemory).columns if each.name != "id"]
    row = ", ".join(f"{name} = kept.{name}" for name in columns)
    found = problems(f"UPDATE agent_memories a SET {row} FROM kept WHERE kept.id = a.id")

    sql.run("DROP TABLE kept")
    assert found == [f"agent {agent.id}: memory {memory.id} does not match its last record"]


def test_a_wrapped_key_opens_in_its_own_row_alone(agent):
    memory, other = saved(agent), saved(agent, "another")

    with pytest.raises(SealingError):
        agent.data_key().unwrap(memory.content_key, content_key_place(other.id))


def test_what_records_left_of_a_memory_ends_with_its_erasure(agent):
    memory = saved(agent)
    forget(agent, memory.id)
    assert [(record.action, left["content"]) for record, left in left_by_records(memory, 9)] == [
        ("memory_forgotten", f"the {CANARY} sings"),
        ("memory_saved", f"the {CANARY} sings"),
    ]

    erased(memory)

    assert left_by_records(memory, 9) == []
