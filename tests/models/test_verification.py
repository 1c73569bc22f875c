"""What verification finds of changes outside the application, by a superuser without the keys.

``test_tampering`` has the rows that decide, and what a changed one opens.
"""

import hashlib
import hmac
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from refine import clock
from refine.errors import RowAltered, SealingError
from refine.extensions import db
from refine.models import Agent, AgentMemory, ChainHead, integrity
from refine.models.attested import signed_columns
from refine.models.audit.record import link_hash
from refine.models.integrity import note_verified, verify_all
from refine.refinement import time_machine
from refine.sealing import DataKey
from tests import editing, factories, sql
from tests.chains import problems, verify_agent
from tests.factories import text_of
from tests.models.cases import case


@pytest.fixture
def agent(app: Flask) -> Agent:
    """An agent with a chain of seven records: three saves, and a session that was undone."""
    return lived(factories.agent())


def lived(agent: Agent) -> Agent:
    for _ in range(3):
        agent.ledger.remember(text_of(25), "core")
    session = factories.session(agent)
    editing.update(session, ids_of(agent)[0], text_of(24))
    editing.complete(session, "Done.")
    time_machine.undo(session, through="dashboard")
    db.session.commit()
    return agent


def ids_of(agent: Agent) -> list[int]:
    mine = select(AgentMemory.id).where(AgentMemory.agent_id == agent.id)
    return list(db.session.scalars(mine.order_by(AgentMemory.id)))


def names_in(agent: Agent) -> dict[str, Any]:
    """What statements and problems name: records, memories and chains by their ids."""
    memories, records = ids_of(agent), [record.id for record in factories.records(agent)]
    return {
        "agent": agent.id,
        "account": agent.account_id,
        "chain": sql.value(f"SELECT id FROM chain_heads WHERE agent_id = {agent.id}"),
        "other_chain": sql.value(
            f"SELECT id FROM chain_heads WHERE account_id = {agent.account_id}"
        ),
        **{f"record_{number}": id_ for number, id_ in enumerate(records, start=1)},
        **{f"memory_{number}": id_ for number, id_ in enumerate(memories, start=1)},
    }


# -- records ---------------------------------------------------------------------------------------

# A changed column of the third record.
RECORD_CHANGES = [
    "account_id = NULL",
    "user_id = 1",
    "agent_id = agent_id + 1",
    "session_id = gen_random_uuid()",
    "action = 'memory_discarded'",
    "auditable_type = 'Agent'",
    "auditable_type = NULL",
    "auditable_id = '999'",
    "auditable_id = NULL",
    "data = replace(data::text, ':', ': ')::json",
    "data = replace(data::text, 'core', 'journal')::json",
    "sealed = NULL",
    "sealed = ''",
    "sealed = sealed || 'x'",
    "sealed = (SELECT sealed FROM audit_logs WHERE id = {record_2})",
    "created_at = created_at + interval '1 microsecond'",
    "rows = '{{}}'",
    "hash = repeat('0', 64)",
]

CUT = "DELETE FROM audit_logs WHERE id = {record_7}"

# Statements, and the problems that verification must find.
CHAIN_CHANGES: dict[str, tuple[list[str], list[str]]] = {
    "nothing": ([], []),
    "a record given another id": (
        ["UPDATE audit_logs SET id = 777777 WHERE id = {record_3}"],
        ["record 3 (id 777777) was altered, added or moved"],
    ),
    "a record moved to the front": (
        ["UPDATE audit_logs SET sequence = 0 WHERE id = {record_4}"],
        ["record 1 is missing (the next one is 0, id {record_4})"],
    ),
    "all records deleted": (
        ["DELETE FROM audit_logs WHERE agent_id = {agent}"],
        ["the chain ends at record 0, its head says 7"],
    ),
    "the last record deleted": ([CUT], ["the chain ends at record 6, its head says 7"]),
    "the last record deleted, and the head set back": (
        [
            CUT,
            "UPDATE chain_heads h SET sequence = 6, hash = l.hash, verified_sequence = 0 "
            "FROM audit_logs l WHERE h.id = {chain} AND l.id = {record_6}",
        ],
        ["the chain's head was changed in the database, not by Refine"],
    ),
    "a record deleted, and later ones renumbered": (
        [
            "DELETE FROM audit_logs WHERE id = {record_5}",
            "UPDATE audit_logs SET sequence = 5 WHERE id = {record_6}",
            "UPDATE audit_logs SET sequence = 6 WHERE id = {record_7}",
        ],
        ["record 5 (id {record_6}) was altered, added or moved"],
    ),
    "records exchanged": (
        [
            "UPDATE audit_logs SET sequence = 99 WHERE id = {record_2}",
            "UPDATE audit_logs SET sequence = 2 WHERE id = {record_3}",
            "UPDATE audit_logs SET sequence = 3 WHERE id = {record_2}",
        ],
        ["record 2 (id {record_3}) was altered, added or moved"],
    ),
    "a record added at the end": (
        [
            "INSERT INTO audit_logs (id, chain_id, sequence, action, data, created_at, hash) "
            "SELECT 777777, chain_id, 8, action, data, created_at, hash "
            "FROM audit_logs WHERE id = {record_7}",
            "UPDATE chain_heads SET sequence = 8 WHERE id = {chain}",
        ],
        ["record 8 (id 777777) was altered, added or moved"],
    ),
    "a record moved to another chain": (
        ["UPDATE audit_logs SET chain_id = {other_chain}, sequence = 2 WHERE id = {record_7}"],
        [
            "record 2 (id {record_7}) was altered, added or moved",
            "the chain ends at record 6, its head says 7",
        ],
    ),
    "a head deleted": (
        ["DELETE FROM chain_heads WHERE id = {chain}"],
        ["the chain has records, but its head is missing", "its audit chain is gone"],
    ),
    **{
        f"{whose} chain deleted altogether": (
            [
                f"DELETE FROM audit_logs WHERE chain_id = {chain}",
                f"DELETE FROM chain_heads WHERE id = {chain}",
            ],
            ["its audit chain is gone"],
        )
        for whose, chain in (("an agent's", "{chain}"), ("an account's", "{other_chain}"))
    },
    "the platform's chain deleted": (
        ["DELETE FROM chain_heads WHERE account_id IS NULL AND agent_id IS NULL"],
        ["its audit chain is gone"],
    ),
    "a head's hash": (
        ["UPDATE chain_heads SET hash = repeat('a', 64) WHERE id = {chain}"],
        ["the chain ends at record 7, its head says 7"],
    ),
    "a chain shorter than once verified": (
        ["UPDATE chain_heads SET verified_sequence = 8 WHERE id = {chain}"],
        ["the chain ends at record 7, but 8 were verified before"],
    ),
    "one bad record in each of two chains": (
        ["UPDATE audit_logs SET action = 'x' WHERE sequence = 1"],
        [
            "record 1 (id {account_record}) was altered, added or moved",
            "record 1 (id {record_1}) was altered, added or moved",
        ],
    ),
}


def test_a_changed_column_of_a_record_is_found_and_named(agent, subtests):
    names = names_in(agent)
    for change in RECORD_CHANGES:
        with subtests.test(change=change):
            made = f"UPDATE audit_logs SET {change.format(**names)} WHERE id = {names['record_3']}"
            assert problems(made) == [
                f"agent {agent.id}: record 3 (id {names['record_3']}) was altered, added or moved"
            ]


def test_a_changed_chain_is_found(agent, subtests):
    account_record = agent.account.record("user_signed_in")
    db.session.commit()
    names = {**names_in(agent), "account_record": account_record.id}
    for name, (statements, expected) in CHAIN_CHANGES.items():
        with subtests.test(change=name):
            found = problems(*(each.format(**names) for each in statements))
            said = [problem.partition(": ")[2] for problem in found]
            assert said == [each.format(**names) for each in expected]


@pytest.mark.parametrize(
    ("action", "minutes", "found"),
    [
        ("memory_saved", 5, None),
        ("memory_saved", 6, "record 2 is dated before an earlier one: time ran backwards"),
        # an expired grant is recorded as of its end, whenever that is noticed
        ("memory_access_ended", 60, None),
    ],
)
def test_times_that_run_backwards_are_found(app, action, minutes, found):
    agent = factories.agent()
    first = agent.record("memory_saved")
    agent.record(action, at=first.created_at - timedelta(minutes=minutes))

    assert verify_agent(agent).problem == found


def test_a_chain_is_not_continued_from_a_forged_head(agent):
    sql.tamper(f"UPDATE chain_heads SET hash = repeat('a', 64) WHERE agent_id = {agent.id}")
    db.session.expire_all()

    with pytest.raises(RowAltered, match=f"the audit chain of agent {agent.id} was changed"):
        agent.ledger.remember("a new memory", "core")


def values_of(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in signed_columns(type(row))}


def rewritten(agent: Agent, key: Any) -> Iterator[str]:
    """What links every record of the chain anew under this key, and sets its head to the last."""
    link = "0" * 64
    for record in factories.records(agent):
        link = link_hash(link, values_of(record), key)
        yield f"UPDATE audit_logs SET hash = '{link}' WHERE id = {record.id}"
    yield f"UPDATE chain_heads SET hash = '{link}' WHERE agent_id = {agent.id}"


class PlainHash:
    """What somebody without any key can compute."""

    def mac(self, text: str, context: str) -> str:
        return hmac.new(b"", context.encode() + b"\x00" + text.encode(), hashlib.sha256).hexdigest()


def test_a_chain_rewritten_under_another_key_is_found_at_its_first_record(agent):
    first = names_in(agent)["record_1"]
    for key in (DataKey(b"k" * 32), agent.data_key(), PlainHash()):
        assert problems(*rewritten(agent, key)) == [
            f"agent {agent.id}: record 1 (id {first}) was altered, added or moved"
        ]


def test_no_key_but_the_platforms_verifies(agent):
    for change in (
        f"wrapped = (SELECT wrapped FROM data_keys WHERE id = {agent.data_key_id})",
        "wrapped = wrapped || 'x'",
        "wrapped = NULL, destroyed_at = now()",
    ):
        with pytest.raises(SealingError):
            problems(f"UPDATE data_keys SET {change} WHERE purpose = 'platform'")
    gone = problems("DELETE FROM data_keys WHERE purpose = 'platform'")
    assert "record 1" in " ".join(gone)


# -- memories --------------------------------------------------------------------------------------

# A changed column of the first memory, which has records, or of the second agent's, which has none.
MEMORY_CHANGES = [
    "id = id + 1000000",
    "memory_type = 'journal'",
    "content = content || 'x'",
    "content = (SELECT content FROM agent_memories WHERE agent_id = a.agent_id AND id <> a.id)",
    "constitutional = NOT constitutional",
    "tags = '{voice}'",
    "tags = '{}'",
    "content_hash = 'x'",
    "token_estimate = 99",
    "discarded_at = now()",
    "created_at = created_at - interval '1 microsecond'",
    "recorded_at = recorded_at - interval '1 microsecond'",
    "updated_at = updated_at - interval '1 microsecond'",
    "source = 'mem0'",
    "source = NULL",
    "source_id = '2'",
    "extra = NULL",
    "extra = ''",
    "session_id = gen_random_uuid()",
    "row_digest = 'x'",
]


@pytest.fixture
def remembered(app: Flask) -> AgentMemory:
    """A memory with every column filled, and a record; beside it another one."""
    agent = factories.agent()
    memory, _ = agent.ledger.remember("a memory", "core", ["relational"])
    memory.source, memory.source_id, memory.extra = "letta", "1", "more"
    agent.ledger.remember("another memory", "core")
    db.session.commit()
    return memory


def test_a_changed_column_of_a_memory_is_found_and_named(remembered, subtests):
    fields = {"tags": ["relational"], "source": "letta", "source_id": "1", "extra": "more"}
    without_record = factories.memory(factories.agent("another memory"), "a memory", **fields)
    db.session.commit()

    for id_, agent_id in [(each.id, each.agent_id) for each in (remembered, without_record)]:
        for change in MEMORY_CHANGES:
            with subtests.test(id=id_, change=change):
                named = id_ + 1_000_000 if change.startswith("id") else id_
                found = problems(f"UPDATE agent_memories a SET {change} WHERE id = {id_}")
                assert found == [
                    f"agent {agent_id}: memory {named} was changed in the database, not by Refine"
                ]


OTHERS = ", ".join({*AgentMemory.__table__.columns.keys()} - {"id"})

# Statements, and the first problem that verification must find.
LEDGER_CHANGES: dict[str, tuple[list[str], str]] = {
    "a memory deleted": (
        ["DELETE FROM agent_memories WHERE id = {memory_1}"],
        "memory {memory_1} has records, but is gone",
    ),
    "a memory moved to another agent": (
        ["UPDATE agent_memories SET agent_id = {other} WHERE id = {memory_1}"],
        "memory {memory_1} has records, but is gone",
    ),
    "a memory copied": (
        [
            f"INSERT INTO agent_memories (id, {OTHERS}) SELECT 777777, {OTHERS} "
            "FROM agent_memories WHERE id = {memory_1}"
        ],
        "memory 777777 was changed in the database, not by Refine",
    ),
    "a memory under another agent's key": (
        [
            "UPDATE agent_memories a SET content = b.content, content_hash = b.content_hash, "
            "token_estimate = b.token_estimate, row_digest = b.row_digest "
            "FROM agent_memories b WHERE a.id = {memory_1} AND b.agent_id = {other}"
        ],
        "memory {memory_1} was changed in the database, not by Refine",
    ),
    "a flag lifted under a forged record": (
        [
            "INSERT INTO audit_logs (id, chain_id, sequence, agent_id, action, auditable_type, "
            "auditable_id, data, created_at, hash) "
            "SELECT 777777, chain_id, 8, agent_id, 'memory_constitutional_toggle', 'AgentMemory', "
            "'{memory_1}', '{{\"constitutional\": false}}', now(), hash "
            "FROM audit_logs WHERE id = {record_7}",
            "UPDATE agent_memories SET constitutional = true WHERE id = {memory_1}",
            "UPDATE chain_heads SET sequence = 8 WHERE id = {chain}",
        ],
        "record 8 (id 777777) was altered, added or moved",
    ),
    "a record made to fit a changed memory": (
        [
            "UPDATE audit_logs SET data = replace(data::text, "
            '\'"after":{{\', \'"after":{{"constitutional":true,\')::json WHERE id = {record_7}',
            "UPDATE agent_memories SET constitutional = true WHERE id = {memory_1}",
        ],
        "record 7 (id {record_7}) was altered, added or moved",
    ),
    "the sum of tokens": (
        ["UPDATE agents SET core_tokens = core_tokens + 1 WHERE id = {agent}"],
        "the figures in the agent's row do not match its memories",
    ),
    "the number of memories": (
        ["UPDATE agents SET core_count = 0 WHERE id = {agent}"],
        "the figures in the agent's row do not match its memories",
    ),
    "the date of the last session": (
        ["UPDATE agents SET last_session_at = NULL WHERE id = {agent}"],
        "the last session in the agent's row does not match its sessions",
    ),
}


def test_a_changed_ledger_is_found(agent, subtests):
    other = factories.agent("words of another", account=agent.account)
    db.session.commit()
    names = {**names_in(agent), "other": other.id}
    for name, (statements, expected) in LEDGER_CHANGES.items():
        with subtests.test(change=name):
            found = problems(*(each.format(**names) for each in statements))
            assert found[0] == f"agent {agent.id}: {expected.format(**names)}"


def test_a_change_without_a_record_is_found_although_the_row_is_genuine(remembered, subtests):
    for field, value in [("content", "new words"), ("tags", ["voice"]), ("memory_type", "journal")]:
        with case(subtests, field=field):
            setattr(remembered, field, value)
            db.session.flush()
            found = verify_agent(remembered.agent).problem
            assert found == f"memory {remembered.id} does not match its last record"


def test_changes_of_the_application_are_no_problem(remembered):
    remembered.extra = "something outside the state"
    remembered.discard()
    remembered.restore()
    remembered.set_constitutional(True)
    factories.memory(remembered.agent, "a memory without a record")
    db.session.commit()
    assert problems() == []

    remembered.agent.erase()
    db.session.commit()
    assert problems() == []


# -- what cannot be read, and what is kept ---------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "agents SET identity_changed_at = 'infinity' WHERE id = {agent}",
        "agent_memories SET created_at = 'infinity' WHERE id = {memory_1}",
        "audit_logs SET created_at = 'infinity' WHERE id = {record_4}",
        "refinement_sessions SET created_at = 'infinity'",
        "chain_heads SET verified_at = 'infinity' WHERE id = {chain}",
    ],
)
def test_a_row_that_cannot_be_read_is_a_problem_of_its_chain_alone(agent, change):
    """An infinite date, for example: PostgreSQL can store it, Python cannot hold it."""
    other = factories.agent("a memory")
    db.session.commit()
    names = names_in(agent)

    first, second = problems(
        f"UPDATE {change.format(**names)}",
        f"UPDATE agent_memories SET tags = '{{voice}}' WHERE agent_id = {other.id}",
    )

    unreadable = "a row of it, or of its owner, cannot be read"
    assert first == f"chain {names['chain']}: {unreadable} (DataError)"
    assert second == (
        f"agent {other.id}: memory {ids_of(other)[0]} was changed in the database, not by Refine"
    )


def test_a_sound_chain_is_marked_with_its_length(agent):
    broken = lived(factories.agent(account=agent.account))
    held = lived(factories.agent(account=agent.account))
    sql.tamper(f"UPDATE audit_logs SET action = 'x' WHERE agent_id = {broken.id} AND sequence = 1")
    at = clock.now()
    db.session.rollback()

    results = list(verify_all())
    with db.engine.connect() as other:
        other.exec_driver_sql(f"SELECT FROM chain_heads WHERE agent_id = {held.id} FOR UPDATE")
        note_verified(results, at)
        db.session.commit()

    heads = {
        head.agent_id: (head.verified_sequence, head.verified_at)
        for head in db.session.scalars(select(ChainHead).where(ChainHead.agent_id.is_not(None)))
    }
    assert heads == {agent.id: (7, at), broken.id: (0, None), held.id: (0, None)}


def test_a_long_chain_is_walked_to_its_end(agent):
    found = problems(
        """INSERT INTO audit_logs (chain_id, sequence, agent_id, action, data, created_at, hash)
           SELECT chain_id, sequence + n, agent_id, action, data, created_at, hash
           FROM audit_logs, generate_series(1, 1100) n WHERE sequence = 7"""
    )

    assert found[0].startswith(f"agent {agent.id}: record 8 (id ")


def test_all_queries_see_one_moment(agent):
    names = names_in(agent)
    db.session.rollback()
    gone = f"DELETE FROM agent_memories WHERE id = {names['memory_1']}"

    with sql.just_before("FROM agent_memories", gone, by=sql.tamper):
        found = list(verify_all())

    assert [each.problem for each in found if each.problem] == []


def test_chains_are_batched_by_their_number_of_records(agent, monkeypatch):
    heads = db.session.scalars(select(ChainHead).order_by(ChainHead.id)).all()
    chains, records = [head.id for head in heads], sum(head.sequence for head in heads)
    assert heads[-1].agent_id == agent.id

    monkeypatch.setattr(integrity, "RECORDS_AT_ONCE", records - 1)

    assert list(integrity.batches_of_chains()) == [chains[:-1], chains[-1:]]
