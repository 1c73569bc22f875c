"""What version 1 sealed is bound to its place, without a moment in which it does not open."""

from typing import Any, NamedTuple

import pytest
from flask import Flask
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from refine.errors import SealingError
from refine.extensions import Base, db
from refine.models import Agent, AgentMemory, ApiToken, AuditLog, IdempotencyKey, RefinementSession
from refine.models.clients.idempotency_key import StoredResponse
from refine.models.integrity import verify_all
from refine.models.keys import WrappedKey
from refine.models.resealing import reseal_everything, sealed_columns, unbound_agents
from refine.refinement import time_machine
from tests import editing, factories, sql
from tests.version_1 import forget_binding, sealing_as_version_1

# all but the records, which stay as they are
KINDS = {
    mapper.class_.__tablename__: mapper.class_
    for mapper in Base.registry.mappers
    if sealed_columns(mapper.class_) and mapper.class_ is not AuditLog
}


class Old(NamedTuple):
    """What an installation of version 1 holds."""

    agent: Agent
    other: Agent
    session: RefinementSession


@pytest.fixture
def old(app: Flask) -> Old:
    with sealing_as_version_1():
        agent = factories.agent(system_prompt="You are Ada.", refinement_prompt="Go gently.")
        memories = factories.ledger(agent, *[25] * 20)
        factories.memory(agent, "Imported.", extra='{"mood": "calm"}', constitutional=True)
        other = factories.agent("another's memory", account=agent.account)
        session = factories.session(agent)
        session.consent_reply = "YES"
        editing.delete(session, memories[0].id)
        editing.complete(session, "Done.")
        factories.extraction(agent, "hello")
        grant = factories.live_grant(agent, factories.user(account=agent.account))
        grant.closing_note = "Read and understood."
        for owner in ({"agent": agent}, {}):
            token, _ = ApiToken.mint(account=agent.account, **owner)
            IdempotencyKey.reserve(token, "k", "a request")[0].store(
                StoredResponse(201, "{}", None)
            )
        agent.record("memory_saved", sealed={"note": "a secret"})
        db.session.commit()
    forget_binding()
    db.session.expire_all()
    return Old(agent, other, session)


def opened() -> dict[str, str | None]:
    """Every sealed text of every row, in clear."""
    db.session.expire_all()
    return {
        f"{table} {row.id} {name}": getattr(row, name.removeprefix("sealed_"))
        for table, kind in KINDS.items()
        for row in db.session.scalars(select(kind))
        for name in sealed_columns(kind)
    }


def unbound_rows() -> list[str]:
    """Where bytes of version 1 are left."""
    return [
        table
        for table, kind in KINDS.items()
        for column in sealed_columns(kind).values()
        if sql.value(f"SELECT count(*) FROM {table} WHERE get_byte({column}, 0) = 1")
    ]


def problems() -> list[str]:
    return [each.problem for each in verify_all() if each.problem is not None]


def test_sealed_columns_have_the_names_that_their_texts_are_bound_to() -> None:
    for kind in KINDS.values():
        for attribute, column in sealed_columns(kind).items():
            assert attribute == f"sealed_{column}"


def test_binds_every_sealed_text_and_key_and_changes_no_word(old: Old) -> None:
    before = opened()
    assert set(unbound_rows()) == set(KINDS)

    list(reseal_everything())

    assert unbound_rows() == []
    assert unbound_agents() == 0
    assert opened() == before
    assert problems() == []


def test_changes_nothing_of_a_memory_but_how_it_is_sealed(old: Old) -> None:
    def rows() -> list[Any]:
        kept = [column for column in AgentMemory.__table__.columns if column.name not in changed]
        return [tuple(row) for row in db.session.execute(select(*kept).order_by(AgentMemory.id))]

    changed = ("content", "extra", "row_digest")
    before = rows()

    list(reseal_everything())

    assert rows() == before


def test_goes_on_where_it_was_cut_off(old: Old) -> None:
    before = opened()
    started = reseal_everything()
    for _ in range(3):
        next(started)
    started.close()
    db.session.rollback()
    assert unbound_agents() == 2
    assert opened() == before

    list(reseal_everything())
    again = list(reseal_everything())

    assert again == []
    assert unbound_rows() == []
    assert opened() == before


def test_a_session_runs_between_any_two_steps(old: Old) -> None:
    session = factories.session(old.agent)
    db.session.commit()
    ids = list(db.session.scalars(old.agent.ledger.core().with_only_columns(AgentMemory.id)))

    for step, _ in enumerate(reseal_everything()):
        editing.update(session, ids[step], f"step {step} " + "and so on " * 9)
        db.session.commit()
    editing.complete(session, "Done.")
    db.session.commit()

    assert unbound_rows() == []
    assert problems() == []


def test_damaged_bytes_stay_and_stop_nothing(old: Old) -> None:
    damaged = sql.value("SELECT min(id) FROM agent_memories")
    sql.tamper(f"UPDATE agent_memories SET content = '\\x01ff' WHERE id = {damaged}")

    list(reseal_everything())

    assert sql.value(f"SELECT content FROM agent_memories WHERE id = {damaged}") == b"\x01\xff"
    assert unbound_rows() == ["agent_memories"]
    assert unbound_agents() == 0
    assert problems() == [f"memory {damaged} was changed outside the application"]


def test_an_altered_agent_or_key_is_left_as_it_is(old: Old) -> None:
    sql.tamper(f"UPDATE agents SET model_id = 'evil/yes' WHERE id = {old.agent.id}")
    sql.tamper(f"UPDATE data_keys SET wrapped = 'x' WHERE id = {old.other.data_key_id}")

    list(reseal_everything())

    assert unbound_agents() == 2


def test_an_erased_agent_is_marked_and_not_opened(old: Old) -> None:
    factories.erase(old.agent)
    db.session.commit()

    list(reseal_everything())

    assert unbound_agents() == 0


def test_a_session_of_version_1_can_be_undone(old: Old) -> None:
    list(reseal_everything())

    time_machine.undo(old.session, through="dashboard")
    db.session.commit()

    assert unbound_rows() == []
    assert problems() == []


# -- what version 1 sealed, put where it does not belong ------------------------------------------


def test_neither_old_bytes_nor_old_keys_open_once_their_agent_is_bound(old: Old) -> None:
    memory = sql.value(f"SELECT min(id) FROM agent_memories WHERE agent_id = {old.agent.id}")
    key = old.agent.data_key_id
    content = sql.value(f"SELECT content FROM agent_memories WHERE id = {memory}").hex()
    wrapped = sql.value(f"SELECT wrapped FROM data_keys WHERE id = {key}").hex()
    list(reseal_everything())
    bound = sql.value(f"SELECT wrapped FROM data_keys WHERE id = {key}").hex()

    sql.tamper(f"UPDATE agent_memories SET content = '\\x{content}' WHERE id = {memory}")
    db.session.expire_all()
    with pytest.raises(SealingError, match="altered or moved"):
        assert db.session.get_one(AgentMemory, memory).content

    sql.tamper(f"UPDATE data_keys SET wrapped = '\\x{wrapped}' WHERE id = {key}")
    db.session.expire_all()
    with pytest.raises(SealingError, match="it was moved"):
        assert db.session.get_one(AgentMemory, memory).content

    assert bound != wrapped


def test_no_old_version_of_an_agent_opens_anothers_memories_even_with_all_old_keys(
    old: Old,
) -> None:
    with sealing_as_version_1():
        victim = factories.agent("sealed by version 1")
        db.session.commit()
    forget_binding()
    put_back = [sql.copied(row) for row in (old.agent, WrappedKey.platform())]
    wrapped = sql.value(f"SELECT wrapped FROM data_keys WHERE id = {victim.data_key_id}").hex()
    list(reseal_everything())
    victim.ledger.remember("sealed since then", "core")
    db.session.commit()

    for each in put_back:
        each()
    sql.run(
        f"UPDATE data_keys SET wrapped = '\\x{wrapped}' WHERE id = {old.agent.data_key_id}",
        "UPDATE agent_memories SET agent_id = "
        f"{old.agent.id + victim.id} - agent_id WHERE NOT constitutional",
    )
    db.session.connection()
    db.session.rollback()
    db.session.expire_all()

    assert WrappedKey.platform_key().opens_unbound
    assert not old.agent.is_bound
    with pytest.raises(SealingError, match="it was moved"):
        old.agent.memory_context()


def test_an_old_record_opens_only_as_it_was_written(old: Old) -> None:
    list(reseal_everything())
    first, second = (
        db.session.scalars(
            select(AuditLog)
            .where(AuditLog.agent_id == old.agent.id, AuditLog.sealed_text.is_not(None))
            .order_by(AuditLog.sequence)
        )
    ).all()[:2]
    assert first.sealed
    assert second.sealed

    sql.tamper(
        f"UPDATE audit_logs a SET sealed = b.sealed FROM audit_logs b "
        f"WHERE a.id = {first.id} AND b.id = {second.id}"
    )
    db.session.expire_all()

    with pytest.raises(SealingError, match="altered or moved"):
        assert first.sealed
    assert second.sealed


# -- what is bound --------------------------------------------------------------------------------


@pytest.fixture
def two(app: Flask) -> tuple[Agent, Agent]:
    agents = factories.agent("mine", "mine too"), factories.agent("another's")
    for agent in agents:
        agent.system_prompt, agent.refinement_prompt = "You are Ada.", "Go gently."
    db.session.commit()
    return agents


def test_sealed_text_in_another_agents_row_does_not_open_even_with_its_key(
    two: tuple[Agent, Agent],
) -> None:
    mine, other = two
    memory = other.ledger.core().with_only_columns(AgentMemory.id)
    target = db.session.scalar(memory)
    sql.tamper(
        f"UPDATE data_keys SET wrapped = (SELECT wrapped FROM data_keys "
        f"WHERE id = {mine.data_key_id}) WHERE id = {other.data_key_id}",
        f"UPDATE agent_memories SET content = (SELECT content FROM agent_memories "
        f"WHERE agent_id = {mine.id} ORDER BY id LIMIT 1) WHERE id = {target}",
    )
    db.session.expire_all()

    with pytest.raises(SealingError, match=f"does not belong to agent {other.id}"):
        assert db.session.get_one(AgentMemory, target).content
    assert problems() == [
        "it cannot be verified: "
        f"the wrapped data key does not belong to agent {other.id}: it was moved"
    ]


@pytest.mark.parametrize(
    "move",
    [
        "UPDATE agent_memories a SET content = b.content FROM agent_memories b "
        "WHERE a.agent_id = {agent} AND b.agent_id = {agent} AND a.id <> b.id",
        "UPDATE agent_memories a SET content = g.system_prompt FROM agents g "
        "WHERE a.agent_id = {agent} AND g.id = {agent}",
    ],
    ids=["row", "table"],
)
def test_sealed_text_of_another_row_does_not_open(two: tuple[Agent, Agent], move: str) -> None:
    sql.tamper(move.format(agent=two[0].id))
    db.session.expire_all()

    with pytest.raises(SealingError, match="altered or moved"):
        two[0].memory_context()


def test_no_record_opens_in_another_ones_place(two: tuple[Agent, Agent]) -> None:
    records = [two[0].record("memory_saved", sealed={"number": number}) for number in range(2)]
    db.session.commit()

    sql.tamper(
        f"UPDATE audit_logs a SET sealed = b.sealed FROM audit_logs b "
        f"WHERE a.id = {records[0].id} AND b.id = {records[1].id}"
    )
    db.session.expire_all()

    with pytest.raises(SealingError, match="altered or moved"):
        assert records[0].sealed


# -- the guard ------------------------------------------------------------------------------------

PERMIT = """
INSERT INTO audit_logs (chain_id, sequence, agent_id, action, data, created_at, hash)
SELECT id, sequence + 1, agent_id, 'memories_resealed', '{{}}', now(), 'x'
FROM chain_heads WHERE agent_id = {agent}
"""


@pytest.mark.parametrize(
    ("permit", "change"),
    [
        ("", "content = '\\x02'"),
        (PERMIT, "content = '\\x01ff'"),
        (PERMIT, "content = '\\x02', token_estimate = 1"),
        (PERMIT, "content = '\\x02', discarded_at = now()"),
        (PERMIT, "content = '\\x02', constitutional = false"),
        (PERMIT, "memory_type = 'journal'"),
    ],
)
def test_the_database_lets_only_a_recorded_resealing_touch_a_constitutional_memory(
    old: Old, permit: str, change: str
) -> None:
    statements = [permit.format(agent=old.agent.id)] if permit else []

    with pytest.raises(DBAPIError) as error:
        sql.run(*statements, f"UPDATE agent_memories SET {change} WHERE constitutional")

    assert error.value.orig.sqlstate == "23001"


def test_the_database_lets_no_resealing_touch_what_is_bound(old: Old) -> None:
    list(reseal_everything())

    with pytest.raises(DBAPIError) as error:
        sql.run(
            PERMIT.format(agent=old.agent.id),
            "UPDATE agent_memories SET content = '\\x02ff' WHERE constitutional",
        )

    assert error.value.orig.sqlstate == "23001"
