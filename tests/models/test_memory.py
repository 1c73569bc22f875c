from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import select
from sqlalchemy.exc import StatementError

from refine import clock
from refine.errors import InvalidValue, Refused
from refine.extensions import db
from refine.models import AgentMemory, AuditLog
from refine.models.integrity import verify_all
from tests import factories, sql

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def is_right(memory: AgentMemory) -> bool:
    """Whether the row, as committed, has the derived columns that it must have."""
    db.session.commit()
    db.session.expire_all()
    key = memory.data_key()
    return (
        memory.token_estimate == -(-len(memory.content) // 4)
        and memory.content_hash
        == key.mac(memory.content.strip().lower(), "agent_memories.content_hash")
        and memory.row_digest == memory.digest_of_row()
    )


def problems() -> list[str]:
    db.session.commit()
    return [verified.problem for verified in verify_all() if verified.problem]


# -- derived columns -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("x", 1),
        ("four", 1),
        ("fives", 2),
        ("  trimmed \n", 2),
        ("é" * 8, 2),
        ("😀" * 10_000, 2_500),
    ],
)
def test_tokens_are_a_quarter_of_the_characters_rounded_up(app, content, tokens):
    memory = factories.memory(factories.agent(), content)

    assert memory.token_estimate == tokens
    assert is_right(memory)


def test_contents_that_differ_in_case_and_margins_alone_have_one_hash(app):
    agent = factories.agent()

    one, other = factories.memory(agent, "Same Words"), factories.memory(agent, "\tsame words ")

    assert one.content_hash == other.content_hash
    assert other.content == "same words"


def test_other_contents_and_other_agents_have_other_hashes(app):
    agent = factories.agent()

    hashes = {
        factories.memory(agent, "same words").content_hash,
        factories.memory(agent, "same  words").content_hash,
        factories.memory(factories.agent(), "same words").content_hash,
    }

    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content", "other words, and more of them"),
        ("memory_type", "journal"),
        ("constitutional", True),
        ("tags", ["voice", "audio"]),
        ("created_at", NOW),
        ("created_at", datetime(2026, 3, 4, 12, tzinfo=timezone(timedelta(hours=2)))),
        ("recorded_at", NOW),
        ("discarded_at", NOW),
        ("source", "letta"),
        ("source_id", "block-1"),
        ("extra", '{"a": 1}'),
    ],
)
def test_every_write_keeps_the_derived_columns_right(app, field, value):
    memory = factories.memory(factories.agent())
    db.session.commit()

    setattr(memory, field, value)

    assert is_right(memory)
    assert getattr(memory, field) == value or field == "tags"


@pytest.mark.parametrize(
    "fields",
    [
        {"created_at": datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=-8)))},
        {"created_at": NOW, "recorded_at": NOW, "updated_at": NOW},
        {"tags": ["voice", "voice", "audio"], "constitutional": True},
        {"source": "mem0", "source_id": "7", "extra": "text"},
        {"id": 10**17},
        {"discarded_at": NOW},
    ],
)
def test_a_memory_made_with_any_field_has_the_right_derived_columns(app, fields):
    memory = factories.memory(factories.agent(), "some words", **fields)

    assert is_right(memory)


def test_tags_changed_in_place_are_stored_and_covered(app):
    memory = factories.memory(factories.agent(), tags=["relational"])
    db.session.commit()

    memory.tags.append("voice")
    memory.content = "other words"

    assert is_right(memory)
    assert memory.tags == ["relational", "voice"]


def test_a_time_without_zone_is_refused(app):
    memory = AgentMemory(
        agent=factories.agent(),
        content="words",
        created_at=datetime(2026, 1, 1),  # noqa: DTZ001
    )
    db.session.add(memory)

    with pytest.raises(StatementError, match="time zone"):
        db.session.flush()


def test_a_change_moves_the_time_of_the_last_change_alone(app):
    memory = factories.memory(factories.agent(), created_at=NOW, recorded_at=NOW, updated_at=NOW)
    db.session.commit()

    memory.content = "other words"
    db.session.commit()

    assert memory.updated_at > NOW
    assert (memory.created_at, memory.recorded_at) == (NOW, NOW)


def test_a_flush_that_changes_nothing_of_the_row_leaves_it_as_it_was(app):
    memory = factories.memory(factories.agent(), tags=["voice"])
    db.session.commit()
    before = sql.snapshot()

    memory.apply(memory.image(), clock.now())
    db.session.commit()

    assert sql.snapshot() == before


# -- content ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", ["", " \n\t", "x" * 10_001, "nul \x00", "half \ud83d", None, 7, ["x"], b"x"]
)
def test_content_that_breaks_a_rule_is_refused(app, content):
    with pytest.raises(InvalidValue, match="content"):
        AgentMemory(agent=factories.agent(), content=content)


@pytest.mark.parametrize(
    "content", ["x", "x" * 10_000, "😀é\u200b\u202e\r\n.", "  " + "x" * 10_000]
)
def test_content_of_1_to_10000_characters_is_kept_as_it_is_trimmed(app, content):
    memory = factories.memory(factories.agent(), content)
    db.session.commit()

    assert memory.content == content.strip()


def test_content_that_breaks_a_rule_leaves_the_old_one(app):
    memory = factories.memory(factories.agent(), "old words")

    with pytest.raises(InvalidValue):
        memory.content = "\x00"

    assert memory.content == "old words"
    assert is_right(memory)


def test_the_stored_columns_never_hold_the_text(app):
    factories.memory(factories.agent(), "the c4n4ry sang", extra="of a c4n4ry")
    db.session.commit()

    stored = sql.value("SELECT agent_memories::text FROM agent_memories")

    assert "c4n4ry" not in stored
    assert b"c4n4ry".hex() not in stored


def test_two_sealings_of_one_text_differ(app):
    agent = factories.agent()

    one, other = factories.memory(agent, "same"), factories.memory(agent, "same")

    assert one.sealed_content != other.sealed_content


@pytest.mark.parametrize("again", ["the same words", "  the same words\n"])
def test_setting_the_content_that_stands_changes_nothing(app, again):
    memory = factories.memory(factories.agent(), "the same words")
    db.session.commit()
    before = sql.snapshot()

    memory.content = again
    db.session.commit()

    assert sql.snapshot() == before


def test_extra_text_is_kept_and_taken_away(app):
    memory = factories.memory(factories.agent(), extra="more")
    db.session.commit()

    memory.extra = None

    assert is_right(memory)
    assert memory.extra is None


@pytest.mark.parametrize("tags", ["voice", ["Voice"], ["secret"], [7], None, 5])
def test_unknown_tags_are_refused(app, tags):
    with pytest.raises(InvalidValue, match="audio, somatic, voice, relational"):
        AgentMemory(agent=factories.agent(), content="words", tags=tags)


@pytest.mark.parametrize("memory_type", ["Core", "", "note", None, ["core"]])
def test_an_unknown_type_is_refused(app, memory_type):
    with pytest.raises(InvalidValue, match="core, journal"):
        AgentMemory(agent=factories.agent(), content="words", memory_type=memory_type)


def test_the_same_source_is_imported_once_for_an_agent(app):
    agent = factories.agent()
    factories.memory(agent, source="letta", source_id="1")
    factories.memory(factories.agent(), source="letta", source_id="1")
    factories.memory(agent, source="mem0", source_id="1")

    with pytest.raises(Exception, match="uq_agent_memories_source"):
        factories.memory(agent, source="letta", source_id="1")


# -- predicates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "is_locked"),
    [
        ({}, False),
        ({"tags": ["relational"]}, False),
        ({"constitutional": True}, True),
        ({"tags": ["audio"]}, True),
        ({"tags": ["somatic"]}, True),
        ({"tags": ["voice", "relational"]}, True),
    ],
)
def test_a_memory_is_locked_by_its_flag_or_by_a_tag_here_and_in_a_query(app, fields, is_locked):
    memory = factories.memory(factories.agent(), **fields)

    found = db.session.scalar(select(AgentMemory.id).where(AgentMemory.is_locked))

    assert memory.is_locked == is_locked
    assert (found == memory.id) == is_locked


def test_a_ledger_entry_shows_data_apart_from_flags(app):
    memory = factories.memory(
        factories.agent(), "words", tags=["relational"], created_at=NOW, constitutional=True
    )

    entry = memory.ledger_entry()

    assert entry == {
        "id": memory.id,
        "date": "2026-03-04",
        "tokens": 2,
        "constitutional": True,
        "tags": ["relational"],
        "content": "words",
    }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("content", "other"),
        ("memory_type", "journal"),
        ("constitutional", True),
        ("tags", ["voice"]),
        ("created_at", NOW),
        ("discarded_at", NOW),
    ],
)
def test_the_state_digest_changes_with_every_part_of_the_state(app, field, value):
    memory = factories.memory(factories.agent())
    before = memory.state_digest

    setattr(memory, field, value)

    assert memory.state_digest != before


def test_the_state_digest_is_blind_to_when_a_memory_was_discarded(app):
    memory = factories.memory(factories.agent(), discarded_at=NOW)
    before = memory.state_digest

    memory.discarded_at = NOW + timedelta(days=1)
    memory.extra = "more"

    assert memory.state_digest == before


# -- verbs -----------------------------------------------------------------------------------------


def test_discarding_is_soft_and_recorded(app):
    memory = factories.memory(factories.agent(), "the canary")
    user = factories.user()

    memory.discard(user=user, at=NOW)

    (record,) = factories.records(memory.agent)
    assert (memory.discarded, memory.discarded_at, memory.content) == (True, NOW, "the canary")
    assert (record.action, record.user_id, record.created_at) == ("memory_discarded", user.id, NOW)
    assert (record.auditable_type, record.auditable_id) == ("AgentMemory", str(memory.id))
    assert record.data["mass_after"] == 0
    assert "canary" not in str(record.data)


def test_restoring_brings_a_memory_back_as_it_was_and_is_recorded(app):
    memory = factories.memory(factories.agent(), "words")
    before = memory.image()
    memory.discard()

    memory.restore(at=NOW)

    record = factories.records(memory.agent)[-1]
    assert memory.image() == before
    assert (record.action, record.created_at) == ("memory_restored", NOW)
    assert record.data["mass_after"] == memory.token_estimate


@pytest.mark.parametrize("constitutional", [True, False])
def test_toggling_the_flag_is_recorded(app, constitutional):
    memory = factories.memory(factories.agent(), constitutional=not constitutional)
    user = factories.user()

    memory.set_constitutional(constitutional, user=user, at=NOW)

    (record,) = factories.records(memory.agent)
    assert memory.constitutional is constitutional
    assert (record.action, record.user_id) == ("memory_constitutional_toggle", user.id)
    assert record.data["constitutional"] is constitutional
    assert record.data["mass_after"] == memory.token_estimate


@pytest.mark.parametrize("verb", ["discard", "restore", "set_constitutional"])
def test_a_verb_that_changes_nothing_records_nothing(app, verb):
    memory = factories.memory(
        factories.agent(), discarded_at=NOW if verb == "discard" else None, constitutional=False
    )

    getattr(memory, verb)(*([False] if verb == "set_constitutional" else []))

    assert factories.records(memory.agent) == []
    assert memory.discarded_at == (NOW if verb == "discard" else None)


def test_a_constitutional_memory_cannot_be_discarded(app):
    memory = factories.memory(factories.agent(), constitutional=True)

    with pytest.raises(Refused, match=f"Cannot discard constitutional memory #{memory.id}"):
        memory.discard()

    assert not memory.discarded
    assert factories.records(memory.agent) == []


def test_a_constitutional_memory_can_be_restored_and_stays_constitutional(app):
    memory = factories.memory(factories.agent(), constitutional=True, discarded_at=NOW)

    memory.restore()

    assert (memory.discarded, memory.constitutional) == (False, True)


@pytest.mark.parametrize("verb", ["discard", "restore", "toggle"])
def test_the_memories_stay_verifiable_after_every_verb(app, verb):
    memory = factories.memory(factories.agent(), tags=["voice"])
    db.session.commit()

    memory.discard()
    if verb == "restore":
        memory.restore()
    if verb == "toggle":
        memory.set_constitutional(True)
        memory.set_constitutional(False)

    assert problems() == []


def test_a_verb_works_on_what_stands_in_the_database_not_on_what_was_read(app):
    memory = factories.memory(factories.agent())
    db.session.commit()
    assert not memory.constitutional
    sql.tamper("UPDATE agent_memories SET constitutional = true")

    with pytest.raises(Refused):
        memory.discard()


def test_the_locked_memories_are_the_agents_alone(app):
    agent, other = factories.agent("mine"), factories.agent("theirs")
    ids = [memory.id for memory in db.session.scalars(select(AgentMemory))]

    locked = AgentMemory.locked(agent, ids)

    assert [memory.agent_id for memory in locked.values()] == [agent.id]
    assert list(AgentMemory.locked(other, ids)) == [ids[1]]


def test_what_is_not_stored_yet_has_no_verbs_and_no_record(app):
    agent = factories.agent()
    memory = AgentMemory(agent=agent, content="not stored yet")

    with pytest.raises(Refused, match="not stored yet"):
        memory.discard()

    assert db.session.scalar(db.select(db.func.count(AuditLog.id))) == 0


def test_a_memory_cannot_move_to_another_agent(app):
    memory = factories.memory(factories.agent())

    with pytest.raises(InvalidValue, match="another agent"):
        memory.agent = factories.agent()
