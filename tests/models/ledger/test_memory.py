from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy.exc import StatementError

from refine.errors import InvalidValue, Refused, RowAltered
from refine.extensions import db
from refine.models import AgentMemory, AuditLog
from refine.models.integrity import verify_all
from refine.models.ledger.image import Change
from refine.rules.content import comparable, token_estimate
from tests import factories, sql
from tests.models.cases import case

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def is_right(memory: AgentMemory) -> bool:
    """Whether the row, as committed, has the derived columns that it must have."""
    db.session.commit()
    db.session.expire_all()
    key = memory.agent.data_key()
    return (
        memory.token_estimate == token_estimate(memory.content)
        and memory.content_hash
        == key.mac(comparable(memory.content), "agent_memories.content_hash")
        and memory.is_genuine
    )


def problems() -> list[str]:
    db.session.commit()
    return [verified.problem for verified in verify_all() if verified.problem]


# -- derived columns -------------------------------------------------------------------------------


def test_every_write_keeps_the_derived_columns_right(app, subtests):
    memory = factories.memory(factories.agent())

    for field, value in [
        ("content", "other words, and more of them"),
        ("memory_type", "journal"),
        ("tags", ["audio", "voice"]),
        ("created_at", NOW),
        ("created_at", datetime(2026, 3, 4, 12, tzinfo=timezone(timedelta(hours=2)))),
        ("recorded_at", NOW),
        ("discarded_at", NOW),
        ("source", "letta"),
        ("source_id", "block-1"),
        ("extra", '{"a": 1}'),
        ("extra", None),
        ("constitutional", True),
    ]:
        with subtests.test(field=field):
            setattr(memory, field, value)
            assert is_right(memory)
            assert getattr(memory, field) == value


def test_a_memory_added_with_any_field_has_the_right_derived_columns(app, subtests):
    agent = factories.agent()

    for fields in [
        {"created_at": datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=-8)))},
        {"created_at": NOW, "recorded_at": NOW, "updated_at": NOW},
        {"tags": ["voice", "voice", "audio"], "constitutional": True},
        {"source": "mem0", "source_id": "7", "extra": "text"},
        {"id": 10**17},
        {"discarded_at": NOW},
    ]:
        with subtests.test(fields=fields):
            assert is_right(factories.memory(agent, "some words", **fields))


def test_tags_changed_in_place_are_stored_and_digested(app):
    memory = factories.memory(factories.agent(), tags=["relational"])
    db.session.commit()

    memory.tags.append("voice")
    memory.content = "other words"

    assert is_right(memory)
    assert memory.tags == ["relational", "voice"]


def test_a_time_without_a_zone_is_refused(app):
    memory = AgentMemory(
        agent=factories.agent(),
        content="words",
        created_at=datetime(2026, 1, 1),  # noqa: DTZ001
    )
    db.session.add(memory)

    with pytest.raises(StatementError, match="time zone"):
        db.session.flush()


# -- content ---------------------------------------------------------------------------------------


def test_invalid_fields_are_refused_and_the_old_ones_stay(app, subtests):
    agent = factories.agent()
    memory = factories.memory(agent, "old words")
    contents = ["", " \n\t", "x" * 10_001, "nul \x00", "half \ud83d", None, 7, ["x"], b"x"]
    for field, message, values in [
        ("content", "content", contents),
        (
            "tags",
            "audio, somatic, voice, relational",
            ["voice", ["Voice"], ["secret"], [7], None, 5],
        ),
        ("memory_type", "core, journal", ["Core", "", "note", None, ["core"]]),
    ]:
        for value in values:
            with subtests.test(field=field, value=str(value)[:10]):
                with pytest.raises(InvalidValue, match=message):
                    AgentMemory(**{"agent": agent, "content": "words", field: value})
                with pytest.raises(InvalidValue, match=message):
                    setattr(memory, field, value)
    assert (memory.content, memory.tags, memory.memory_type) == ("old words", [], "core")
    assert is_right(memory)


def test_the_stored_columns_never_hold_the_text(app):
    factories.memory(factories.agent(), "the c4n4ry sang", extra="of a c4n4ry")
    db.session.commit()

    stored = sql.value("SELECT agent_memories::text FROM agent_memories")

    assert "c4n4ry" not in stored
    assert b"c4n4ry".hex() not in stored


def test_setting_the_same_content_changes_nothing(app):
    memory = factories.memory(factories.agent(), "the same words")
    db.session.commit()
    before = sql.snapshot()

    for again in ["the same words", "  the same words\n"]:
        memory.content = again
        memory.apply(Change(memory.id, memory.image(), memory.image()), NOW)
        db.session.commit()

    assert sql.snapshot() == before


# -- predicates ------------------------------------------------------------------------------------


def test_the_state_digest_changes_with_every_part_of_the_state(app, subtests):
    memory = factories.memory(factories.agent())
    before = memory.state_digest

    for field, value in [
        ("content", "other"),
        ("memory_type", "journal"),
        ("constitutional", True),
        ("tags", ["voice"]),
        ("created_at", NOW),
        ("discarded_at", NOW),
    ]:
        with case(subtests, field=field):
            assert memory.state_digest == before
            setattr(memory, field, value)
            assert memory.state_digest != before


# -- verbs -----------------------------------------------------------------------------------------


def test_discarding_is_soft_and_recorded(app):
    memory = factories.memory(factories.agent(), "the canary")
    user = factories.user()

    memory.discard(user=user, at=NOW)

    (record,) = factories.records(memory.agent)
    assert (memory.discarded, memory.discarded_at, memory.content) == (True, NOW, "the canary")
    assert memory.updated_at == NOW
    assert (record.action, record.user_id, record.created_at) == ("memory_discarded", user.id, NOW)
    assert (record.auditable_type, record.auditable_id) == ("AgentMemory", str(memory.id))
    assert record.data["mass_after"] == 0
    assert "canary" not in str(record.data)


def test_restoring_brings_back_the_memory_unchanged_and_is_recorded(app):
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


def test_a_verb_that_changes_nothing_records_nothing(app):
    agent = factories.agent()
    kept, discarded = factories.memory(agent), factories.memory(agent, discarded_at=NOW)

    discarded.discard()
    kept.restore()
    kept.set_constitutional(False)

    assert factories.records(agent) == []
    assert (kept.discarded_at, discarded.discarded_at) == (None, NOW)


def test_a_constitutional_memory_cannot_be_discarded(app):
    memory = factories.memory(factories.agent(), constitutional=True)

    with pytest.raises(Refused, match=f"Cannot discard constitutional memory #{memory.id}"):
        memory.discard()

    assert not memory.discarded
    assert factories.records(memory.agent) == []


def test_a_verb_decides_by_the_stored_row_not_by_an_old_copy(app):
    memory = factories.memory(factories.agent())
    db.session.commit()
    assert not memory.constitutional
    with app.app_context():  # another transaction
        db.session.get_one(AgentMemory, memory.id).set_constitutional(True)
        db.session.commit()

    with pytest.raises(Refused):
        memory.discard()


def test_a_change_does_not_make_an_altered_memory_genuine(app):
    memory = factories.memory(factories.agent(), tags=["voice"])
    db.session.commit()
    id_ = memory.id
    sql.tamper("UPDATE agent_memories SET tags = '{}'")

    with pytest.raises(RowAltered, match=f"memory {id_} was changed in the database"):
        memory.set_constitutional(True)

    assert problems() == [f"memory {id_} was changed in the database, not by Refine"]


def test_a_memory_that_is_not_stored_yet_has_no_verbs(app):
    agent = factories.agent()
    memory = AgentMemory(agent=agent, content="not stored yet")

    with pytest.raises(Refused, match="not stored yet"):
        memory.discard()

    assert db.session.scalar(db.select(db.func.count(AuditLog.id))) == 0


def test_a_memory_cannot_move_to_another_agent(app):
    agent = factories.agent()
    memory = factories.memory(agent)

    memory.agent = agent
    with pytest.raises(InvalidValue, match="another agent"):
        memory.agent = factories.agent()
