"""Whole attacks: rows replaced, replayed, exchanged and forged by somebody who has no key of ours.

What a single changed column comes to is in ``audit/test_verification``.
"""

import hashlib
import hmac
import json

import pytest
from sqlalchemy import select

from refine.errors import RowAltered, SealingError
from refine.extensions import canonical_json, db
from refine.models import AgentMemory, ChainHead, WrappedKey
from refine.models.integrity import note_verified, verify_all
from refine.refinement import time_machine
from refine.sealing import DataKey
from tests import editing, factories, sql
from tests.factories import text_of


@pytest.fixture
def agent(app):
    """An agent with a chain of seven records: three saves, and a session that was undone."""
    return lived(factories.agent())


def lived(agent):
    for _ in range(3):
        agent.ledger.remember(text_of(25), "core")
    session = factories.session(agent)
    editing.update(session, ids_of(agent)[0], text_of(24))
    editing.complete(session, "Done.")
    time_machine.undo(session, through="dashboard")
    db.session.commit()
    assert len(factories.records(agent)) == 7
    return agent


def ids_of(agent):
    mine = select(AgentMemory.id).where(AgentMemory.agent_id == agent.id)
    return list(db.session.scalars(mine.order_by(AgentMemory.id)))


def record_ids(agent):
    return [record.id for record in factories.records(agent)]


def problems():
    db.session.rollback()
    db.session.expire_all()
    found = [verified.problem for verified in verify_all()]
    db.session.rollback()
    return [problem for problem in found if problem is not None]


def altered(sequence, record_id):
    return f"record {sequence} (id {record_id}) was altered, added or moved"


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ("core_tokens = core_tokens + 1", "the figures in the agent's row do not match"),
        ("core_count = 0", "the figures in the agent's row do not match"),
        ("last_session_at = NULL", "the last session in the agent's row does not match"),
    ],
)
def test_figures_of_lists_that_were_changed_are_found(agent, figures, found):
    sql.run(f"UPDATE agents SET {figures}")

    (problem,) = problems()

    assert found in problem


# -- records ---------------------------------------------------------------------------------------


def test_untouched_chains_have_no_problem(agent):
    assert problems() == []


@pytest.mark.parametrize(
    ("sequence", "found"),
    [
        (0, "record 1 is missing (the next one is 0, id {})"),
        (-7, "record 1 is missing (the next one is -7, id {})"),
        (99, "record 4 is missing (the next one is 5, id {next})"),
    ],
)
def test_a_record_that_was_given_another_place_is_found(agent, sequence, found):
    moved, following = record_ids(agent)[3:5]

    sql.tamper(f"UPDATE audit_logs SET sequence = {sequence} WHERE id = {moved}")

    assert problems() == [found.format(moved, next=following)]


def test_a_record_that_was_moved_to_no_chain_is_missed_and_seen(agent):
    ids = record_ids(agent)

    sql.tamper(f"UPDATE audit_logs SET chain_id = 999999 WHERE id = {ids[3]}")

    assert problems() == [
        f"record 4 is missing (the next one is 5, id {ids[4]})",
        "the chain has records, but its head is missing",
    ]


def test_deleted_first_records_are_found(agent):
    ids = record_ids(agent)

    sql.tamper(f"DELETE FROM audit_logs WHERE id IN ({ids[0]}, {ids[1]})")

    assert problems() == [f"record 1 is missing (the next one is 3, id {ids[2]})"]


def test_a_head_without_its_records_is_found(agent):
    sql.tamper(f"DELETE FROM audit_logs WHERE agent_id = {agent.id}")

    assert problems() == ["the chain ends at record 0, its head says 7"]


@pytest.mark.parametrize("place", [1, 4, 7])
def test_a_record_that_was_slipped_in_is_found_although_all_after_it_moved_up(agent, place):
    sql.tamper(
        f"UPDATE audit_logs SET sequence = -sequence - 1 WHERE sequence >= {place}",
        "UPDATE audit_logs SET sequence = -sequence WHERE sequence < 0",
        f"""INSERT INTO audit_logs
              (id, chain_id, sequence, agent_id, action, data, created_at, hash)
            SELECT 777777, chain_id, {place}, agent_id, action, data, created_at, hash
            FROM audit_logs WHERE sequence = {place + 1}""",
        "UPDATE chain_heads SET sequence = sequence + 1 WHERE sequence > 0",
    )

    assert problems() == [altered(place, 777777)]


def test_a_record_overwritten_with_another_is_found(agent):
    ids = record_ids(agent)

    sql.tamper(
        f"""UPDATE audit_logs a SET action = b.action, data = b.data, sealed = b.sealed,
              auditable_type = b.auditable_type, auditable_id = b.auditable_id, hash = b.hash
            FROM audit_logs b WHERE a.id = {ids[2]} AND b.id = {ids[1]}"""
    )

    assert problems() == [altered(3, ids[2])]


def test_records_that_two_agents_chains_exchanged_are_found_in_both(agent):
    other = lived(factories.agent(account=agent.account))
    ours, theirs = record_ids(agent)[4], record_ids(other)[4]

    sql.tamper(
        f"""UPDATE audit_logs a SET chain_id = b.chain_id, agent_id = b.agent_id, sequence = -5
            FROM audit_logs b WHERE a.id = {ours} AND b.id = {theirs}""",
        f"""UPDATE audit_logs SET agent_id = {agent.id},
              chain_id = (SELECT id FROM chain_heads WHERE agent_id = {agent.id})
            WHERE id = {theirs}""",
        f"UPDATE audit_logs SET sequence = 5 WHERE id = {ours}",
    )

    assert problems() == [altered(5, theirs), altered(5, ours)]


def test_heads_that_were_exchanged_are_found(agent):
    lived(factories.agent())

    sql.tamper(
        """UPDATE chain_heads a SET sequence = b.sequence, hash = b.hash
           FROM chain_heads b WHERE a.id <> b.id AND a.sequence > 0 AND b.sequence > 0"""
    )

    assert problems() == ["the chain ends at record 7, its head says 7"] * 2


def test_a_chain_that_was_given_to_another_agent_is_found(agent):
    other = factories.agent("a memory")
    db.session.commit()

    sql.tamper(
        f"DELETE FROM chain_heads WHERE agent_id = {other.id}",
        f"UPDATE chain_heads SET agent_id = {other.id} WHERE agent_id = {agent.id}",
    )

    assert problems() == [
        "the chain's head was changed outside the application",
        "its audit chain is gone",
    ]


def test_an_altered_record_is_found_after_later_records(agent):
    id_ = record_ids(agent)[2]
    sql.tamper(f"UPDATE audit_logs SET action = 'x' WHERE id = {id_}")
    db.session.expire_all()

    agent.ledger.remember("a new memory", "core")
    db.session.commit()

    assert problems() == [altered(3, id_)]


def test_a_chain_is_not_continued_from_a_forged_head(agent):
    sql.tamper(f"UPDATE chain_heads SET hash = repeat('a', 64) WHERE agent_id = {agent.id}")
    db.session.expire_all()

    with pytest.raises(RowAltered, match=f"the audit chain of agent {agent.id} was changed"):
        agent.ledger.remember("a new memory", "core")

    assert problems() == ["the chain ends at record 7, its head says 7"]


# -- chains rewritten without the key --------------------------------------------------------------


def image_with(agent, key):
    """What seals every record of the chain anew under this key, and sets its head to the last."""
    link = "0" * 64
    for record in factories.records(agent):
        link = record.link(key, link, canonical_json(record.data))
        yield f"UPDATE audit_logs SET hash = '{link}' WHERE id = {record.id}"
    yield f"UPDATE chain_heads SET hash = '{link}' WHERE agent_id = {agent.id}"


class PlainHash:
    """What somebody without any key can reckon."""

    def mac(self, text, context):
        return hmac.new(b"", context.encode() + b"\x00" + text.encode(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize("whose", ["a stranger", "the agent", "nobody"])
def test_a_chain_that_was_rewritten_under_another_key_is_found_at_its_first_record(agent, whose):
    keys = {
        "a stranger": DataKey(b"k" * 32),
        "the agent": agent.data_key(),
        "nobody": PlainHash(),
    }

    sql.tamper(*image_with(agent, keys[whose]))

    assert problems() == [altered(1, record_ids(agent)[0])]


def test_a_chain_rewritten_under_the_right_key_verifies(agent):
    sql.tamper(*image_with(agent, WrappedKey.platform_key()))
    head = db.session.scalars(select(ChainHead).where(ChainHead.agent_id == agent.id)).one()
    head.advance()
    db.session.commit()

    assert problems() == []


def test_an_agents_key_in_the_place_of_the_platforms_is_found(agent):
    sql.tamper(
        f"""UPDATE data_keys p SET wrapped = a.wrapped FROM data_keys a
            WHERE p.purpose = 'platform' AND a.id = {agent.data_key_id}"""
    )

    with pytest.raises(SealingError, match="does not belong to the platform"):
        problems()


def test_a_platforms_key_that_is_gone_is_found(agent):
    sql.tamper("DELETE FROM data_keys WHERE purpose = 'platform'")

    assert altered(1, record_ids(agent)[0]) in problems()


@pytest.mark.parametrize(
    "change",
    ["wrapped = wrapped || 'x'", "wrapped = NULL, destroyed_at = now()"],
)
def test_a_platforms_key_that_does_not_open_stops_verification(agent, change):
    sql.tamper(f"UPDATE data_keys SET {change} WHERE purpose = 'platform'")
    db.session.expire_all()

    with pytest.raises(SealingError):
        problems()


# -- rows that cannot be read ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "unreadable"),
    [
        ("agents SET identity_changed_at = 'infinity' WHERE id = {agent}", "Agent {agent}"),
        ("agents SET updated_at = '20000-01-01' WHERE id = {agent}", "Agent {agent}"),
        ("agent_memories SET created_at = 'infinity' WHERE id = {memory}", "AgentMemory {memory}"),
        ("audit_logs SET created_at = 'infinity' WHERE id = {record}", "AuditLog {record}"),
        ("refinement_sessions SET created_at = 'infinity'", "RefinementSession {session}"),
        ("chain_heads SET verified_at = 'infinity' WHERE agent_id = {agent}", "the chain's head"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_hides_no_other(agent, change, unreadable):
    """An infinite date, for example: PostgreSQL can store it, Python cannot hold it."""
    names = {
        "agent": agent.id,
        "memory": ids_of(agent)[1],
        "record": record_ids(agent)[4],
        "session": sql.value("SELECT id FROM refinement_sessions"),
    }
    other = factories.agent("a memory")
    db.session.commit()
    sql.tamper(
        f"UPDATE {change.format(**names)}",
        f"UPDATE agent_memories SET tags = '{{voice}}' WHERE agent_id = {other.id}",
    )

    first, second, *_ = problems()

    assert first == f"{unreadable.format(**names)} cannot be read"
    assert second == f"memory {ids_of(other)[0]} was changed outside the application"


# -- memories --------------------------------------------------------------------------------------


def columns_but(*left_out):
    return [column.name for column in AgentMemory.__table__.columns if column.name not in left_out]


def test_a_row_that_was_brought_back_from_an_earlier_day_is_found(agent):
    id_ = ids_of(agent)[0]
    sql.run(f"CREATE TABLE earlier AS SELECT * FROM agent_memories WHERE id = {id_}")
    db.session.get_one(AgentMemory, id_).set_constitutional(True)
    db.session.commit()

    set_back = ", ".join(f"{name} = e.{name}" for name in columns_but("id"))
    sql.tamper(
        f"UPDATE agent_memories m SET {set_back} FROM earlier e WHERE m.id = e.id",
        "DROP TABLE earlier",
    )

    assert problems() == [f"memory {id_} does not match its last record"]


def test_memories_that_exchanged_all_but_their_ids_are_found(agent):
    ids = ids_of(agent)[:2]
    exchanged = ", ".join(f"{name} = b.{name}" for name in columns_but("id"))

    sql.tamper(
        f"""UPDATE agent_memories a SET {exchanged} FROM agent_memories b
            WHERE a.id <> b.id AND a.id IN ({ids[0]}, {ids[1]}) AND b.id IN ({ids[0]}, {ids[1]})"""
    )

    assert problems() == [f"memory {ids[0]} was changed outside the application"]


def test_a_memory_that_was_added_past_the_application_is_found(agent):
    others = ", ".join(columns_but("id"))

    sql.tamper(
        f"""INSERT INTO agent_memories (id, {others}) SELECT 777777, {others}
            FROM agent_memories WHERE id = {ids_of(agent)[0]}"""
    )

    assert problems() == ["memory 777777 was changed outside the application"]


def test_a_memory_that_was_written_under_another_agents_key_is_found(agent):
    stranger = factories.memory(factories.agent(), "words of another")
    db.session.commit()
    id_ = ids_of(agent)[0]

    sql.tamper(
        f"""UPDATE agent_memories a SET content = b.content, content_hash = b.content_hash,
              token_estimate = b.token_estimate, row_digest = b.row_digest
            FROM agent_memories b WHERE a.id = {id_} AND b.id = {stranger.id}"""
    )

    assert problems() == [f"memory {id_} was changed outside the application"]


def test_an_agent_that_was_given_another_ones_key_is_found(agent):
    other = factories.agent("a memory")
    db.session.commit()

    sql.tamper(
        f"""UPDATE data_keys a SET wrapped = b.wrapped FROM data_keys b
            WHERE a.id <> b.id AND a.id IN ({agent.data_key_id}, {other.data_key_id})
              AND b.id IN ({agent.data_key_id}, {other.data_key_id})"""
    )

    assert problems() == [
        "it cannot be verified: "
        f"the wrapped data key does not belong to agent {each.id}: it was moved"
        for each in (agent, other)
    ]


def test_lifting_a_flag_under_a_forged_record_is_found(agent):
    vow = db.session.get_one(AgentMemory, ids_of(agent)[0])
    vow.set_constitutional(True)
    db.session.commit()

    sql.run(
        f"""INSERT INTO audit_logs (id, chain_id, sequence, agent_id, action, auditable_type,
              auditable_id, data, created_at, hash)
            SELECT 777777, chain_id, 9, agent_id, action, auditable_type, auditable_id,
              '{{"constitutional": false}}', now(), hash
            FROM audit_logs WHERE agent_id = {agent.id} AND sequence = 8""",
        f"UPDATE agent_memories SET constitutional = false WHERE id = {vow.id}",
        f"UPDATE chain_heads SET sequence = 9 WHERE agent_id = {agent.id}",
    )

    assert problems() == [altered(9, 777777)]


def test_a_record_that_was_made_to_fit_a_changed_memory_is_found(agent):
    record = factories.records(agent)[-1]
    data = json.loads(json.dumps(record.data))
    data["memories"][0]["after"]["constitutional"] = True

    sql.tamper(
        f"UPDATE audit_logs SET data = '{canonical_json(data)}' WHERE id = {record.id}",
        f"UPDATE agent_memories SET constitutional = true WHERE id = {data['memories'][0]['id']}",
    )

    assert problems() == [altered(7, record.id)]


def test_a_new_database_verifies_again_and_again(app):
    factories.agent("a memory").record("agent_created")
    db.session.commit()

    for _ in range(2):
        db.session.rollback()
        found = list(verify_all())
        assert [each.problem for each in found] == [None]
        for each in found:
            note_verified(each)
        db.session.commit()
