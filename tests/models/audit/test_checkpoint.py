"""Verification that goes on from where chains were verified, and what is changed meanwhile."""

import pytest
from flask import Flask
from sqlalchemy import event, select

from refine.extensions import db
from refine.models import Agent, AgentMemory, ChainHead
from refine.models.audit import chain_walk
from refine.models.audit.checkpoint import Checkpoint
from refine.models.integrity import note_verified, verify_all
from tests import factories, sql


@pytest.fixture
def agent(app: Flask) -> Agent:
    """An agent with three memories, their records, and a change of its settings; all verified."""
    agent = factories.agent(name="Ada")
    for content in ("one", "two", "three"):
        agent.ledger.remember(content, "core")
    agent.record("agent_created", subject=("Agent", agent.id))
    db.session.commit()
    verify_and_note()
    return agent


def verify_and_note() -> None:
    new_request()
    found = list(verify_all())
    assert [each.problem for each in found if each.problem] == []
    note_verified(*found)
    db.session.commit()


def new_request() -> None:
    db.session.rollback()
    db.session.expire_all()


def problems(*, in_full: bool = False) -> list[str]:
    new_request()
    found = [each.problem for each in verify_all(in_full=in_full) if each.problem is not None]
    new_request()
    return found


def mine(agent: Agent) -> str:
    return f"chain_id = (SELECT id FROM chain_heads WHERE agent_id = {agent.id})"


def checkpoint_of(agent: Agent) -> Checkpoint:
    head = select(ChainHead.id).where(ChainHead.agent_id == agent.id)
    return db.session.get_one(Checkpoint, db.session.scalars(head).one())


# -- what it reads ---------------------------------------------------------------------------------


def test_it_counts_what_was_verified_before_as_verified(agent: Agent) -> None:
    agent.ledger.remember("four", "core")
    db.session.commit()

    found = {each.name: each for each in verify_all(in_full=False)}

    verified = found[f"agent {agent.id}"]
    assert (verified.records, verified.memories, verified.problem) == (5, 4, None)


def test_an_edited_record_that_was_verified_before_is_found_in_full_alone(agent: Agent) -> None:
    id_ = factories.records(agent)[1].id

    sql.tamper(f"UPDATE audit_logs SET action = 'x' WHERE id = {id_}")

    assert problems() == []
    assert problems(in_full=True) == [f"record 2 (id {id_}) was altered, added or moved"]


def test_a_record_that_was_added_since_is_checked(agent: Agent) -> None:
    agent.ledger.remember("four", "core")
    db.session.commit()
    id_ = factories.records(agent)[-1].id

    sql.tamper(f"UPDATE audit_logs SET action = 'x' WHERE id = {id_}")

    assert problems() == [f"record 5 (id {id_}) was altered, added or moved"]


def test_an_erased_agent_is_gone_on_with(agent: Agent) -> None:
    agent.erase()
    db.session.commit()
    verify_and_note()

    assert problems() == []


def test_a_long_chain_is_read_in_transactions_of_one_page(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_walk, "PAGE", 1)
    new_request()
    read, at_end = 0, []

    def note_read(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal read
        read += statement.startswith("SELECT audit_logs.id")

    def note_end(_connection: object) -> None:
        nonlocal read
        at_end.append(read)
        read = 0

    event.listen(db.engine, "before_cursor_execute", note_read)
    event.listen(db.engine, "commit", note_end)
    try:
        found = [each.problem for each in verify_all()]
    finally:
        event.remove(db.engine, "before_cursor_execute", note_read)
        event.remove(db.engine, "commit", note_end)

    assert set(found) == {None}
    assert sum(at_end) > 4
    assert max(at_end) <= 2


# -- what is found although it is not read ---------------------------------------------------------


@pytest.mark.parametrize("sequence", [1, 2, 4])
def test_a_removed_record_is_missed(agent: Agent, sequence: int) -> None:
    ids = [record.id for record in factories.records(agent)]

    sql.tamper(f"DELETE FROM audit_logs WHERE id = {ids[sequence - 1]}")

    at_the_end = "the chain ends at record 3, its head says 4"
    assert problems() == [
        at_the_end
        if sequence == 4
        else f"record {sequence} is missing (the next one is {sequence + 1}, id {ids[sequence]})"
    ]


def test_a_record_that_was_put_before_all_others_is_found(agent: Agent) -> None:
    sql.tamper(
        f"""INSERT INTO audit_logs (id, chain_id, sequence, action, data, created_at, hash)
            SELECT 777777, chain_id, 0, action, data, created_at, hash
            FROM audit_logs WHERE {mine(agent)} AND sequence = 1"""
    )

    assert problems() == ["record 1 is missing (the next one is 0, id 777777)"]


@pytest.mark.parametrize("in_full", [False, True])
def test_a_cut_tail_with_an_older_head_put_back_is_found(app: Flask, in_full: bool) -> None:
    """As a backup may hold the head, with its digest, but not the checkpoint."""
    agent = factories.agent()
    agent.record("x")
    agent.record("y")
    db.session.commit()
    head = db.session.scalars(select(ChainHead).where(ChainHead.agent_id == agent.id)).one()
    put_back = sql.copied(head)
    agent.record("z")
    db.session.commit()
    verify_and_note()

    put_back()
    sql.tamper(f"DELETE FROM audit_logs WHERE {mine(agent)} AND sequence = 3")

    assert problems(in_full=in_full) == ["the chain ends at record 2, but 3 were verified before"]


@pytest.mark.parametrize("in_full", [False, True])
def test_a_tail_that_was_cut_and_grown_again_is_found(app: Flask, in_full: bool) -> None:
    agent = factories.agent()
    agent.record("x")
    db.session.commit()
    head = db.session.scalars(select(ChainHead).where(ChainHead.agent_id == agent.id)).one()
    put_back = sql.copied(head)
    agent.record("y")
    db.session.commit()
    verify_and_note()

    put_back()
    sql.tamper(f"DELETE FROM audit_logs WHERE {mine(agent)} AND sequence = 2")
    db.session.expire_all()
    agent.record("z")
    db.session.commit()

    assert problems(in_full=in_full) == ["record 2 is not the one that was verified before"]


def test_rows_that_were_changed_since_are_found(agent: Agent) -> None:
    sql.tamper(f"UPDATE agents SET model_id = 'rehearsal/yes' WHERE id = {agent.id}")

    assert problems() == [f"Agent {agent.id} was changed outside the application"]


def test_an_older_memory_that_was_put_back_is_found(agent: Agent) -> None:
    memory = db.session.scalars(select(AgentMemory).order_by(AgentMemory.id)).first()
    assert memory is not None
    put_back = sql.copied(memory)
    memory.discard()
    db.session.commit()
    verify_and_note()

    put_back()

    assert problems() == [f"memory {memory.id} does not match its last record"]


def test_an_older_row_that_was_put_back_before_a_change_is_found(agent: Agent) -> None:
    agent.author("system_prompt", "You are Bo.")
    db.session.commit()
    put_back = sql.copied(agent)
    agent.author("system_prompt", "Never let anybody read.")
    db.session.commit()
    verify_and_note()

    put_back()
    db.session.expire_all()
    agent.author("system_prompt", "You are Cy.")
    db.session.commit()

    assert problems() == [f"Agent {agent.id} was set back before record 7"]


def test_a_memory_that_is_gone_since_is_missed(agent: Agent) -> None:
    memory_id = sql.value("SELECT max(id) FROM agent_memories")

    sql.tamper(f"DELETE FROM agent_memories WHERE id = {memory_id}")

    assert problems() == [f"memory {memory_id} has records, but is gone"]


def test_a_key_that_was_destroyed_since_without_a_record_is_missed(agent: Agent) -> None:
    sql.tamper(
        f"UPDATE data_keys SET wrapped = NULL, destroyed_at = now() WHERE id = {agent.data_key_id}"
    )

    assert problems() == ["the data key was destroyed without a record"]


# -- checkpoints themselves ------------------------------------------------------------------------

MOVED = "the chain's checkpoint was changed outside the application"


@pytest.mark.parametrize(
    "change",
    [
        "sequence = 3",
        "sequence = 99",
        "hash = repeat('a', 64)",
        "left_digests = left_digests || 'x'",
        "left_digests = ''",
        "digest = repeat('a', 64)",
    ],
)
def test_a_changed_checkpoint_is_found_until_all_is_read(agent: Agent, change: str) -> None:
    sql.tamper(f"UPDATE chain_checkpoints SET {change} WHERE {mine(agent)}")

    assert problems() == [MOVED]
    assert problems(in_full=True) == []
    verify_and_note()
    assert problems() == []


def test_a_moved_checkpoint_hides_nothing(agent: Agent) -> None:
    record = factories.records(agent)[1]
    sql.tamper(
        f"UPDATE audit_logs SET action = 'x' WHERE id = {record.id}",
        f"UPDATE chain_checkpoints SET sequence = 3 WHERE {mine(agent)}",
    )

    assert problems() == [f"record 2 (id {record.id}) was altered, added or moved"]


def test_the_checkpoint_of_another_chain_counts_for_nothing(agent: Agent) -> None:
    other = factories.agent()
    for content in ("one", "two", "three"):
        other.ledger.remember(content, "core")
    other.record("agent_created", subject=("Agent", other.id))
    db.session.commit()
    verify_and_note()

    sql.tamper(
        f"""UPDATE chain_checkpoints a
            SET sequence = b.sequence, hash = b.hash, left_digests = b.left_digests,
              digest = b.digest
            FROM chain_checkpoints b WHERE a.{mine(agent)} AND b.{mine(other)}"""
    )

    assert problems() == [MOVED]


def test_an_older_checkpoint_only_means_that_more_is_read(agent: Agent) -> None:
    older = sql.copied_by("chain_checkpoints", "chain_id", checkpoint_of(agent).chain_id)
    agent.ledger.remember("four", "core")
    db.session.commit()
    verify_and_note()

    older()

    assert problems() == []


def test_without_its_checkpoint_a_chain_is_read_from_the_start(agent: Agent) -> None:
    id_ = factories.records(agent)[1].id

    sql.tamper(
        f"DELETE FROM chain_checkpoints WHERE {mine(agent)}",
        f"UPDATE audit_logs SET action = 'x' WHERE id = {id_}",
    )

    assert problems() == [f"record 2 (id {id_}) was altered, added or moved"]


def test_a_broken_chain_gets_no_checkpoint(agent: Agent) -> None:
    before = checkpoint_of(agent).sequence
    agent.record("x")
    db.session.commit()
    sql.tamper(f"UPDATE audit_logs SET action = 'y' WHERE {mine(agent)} AND sequence = 5")
    new_request()

    note_verified(*verify_all(in_full=False))
    db.session.commit()

    db.session.expire_all()
    assert checkpoint_of(agent).sequence == before


def test_a_head_that_is_locked_is_stamped_the_next_time(agent: Agent) -> None:
    agent.record("x")
    db.session.commit()
    with db.engine.connect() as other:
        other.exec_driver_sql(f"SELECT FROM chain_heads WHERE agent_id = {agent.id} FOR UPDATE")
        verify_and_note()
        before = checkpoint_of(agent).sequence
        other.rollback()

    verify_and_note()

    assert (before, checkpoint_of(agent).sequence) == (4, 5)
