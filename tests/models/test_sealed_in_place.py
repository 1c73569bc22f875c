"""Sealed text opens in its own column of its own row alone, and a key for its owner alone."""

import pytest
from flask import Flask

from refine.errors import SealingError
from refine.extensions import Base, db
from refine.models import Agent, AgentMemory
from refine.models.integrity import verify_all
from tests import factories, sql


def problems() -> list[str]:
    return [each.problem for each in verify_all() if each.problem is not None]


def test_sealed_columns_have_the_names_that_their_texts_are_bound_to():
    sealed = {
        each.key: each.columns[0].name
        for mapper in Base.registry.mappers
        for each in mapper.column_attrs
        if each.key.startswith("sealed_") and each.key != "sealed_text"
    }

    assert len(sealed) > 10
    assert all(attribute == f"sealed_{column}" for attribute, column in sealed.items())


@pytest.fixture
def two(app: Flask) -> tuple[Agent, Agent]:
    agents = factories.agent("mine", "mine too"), factories.agent("another's")
    for agent in agents:
        agent.system_prompt, agent.refinement_prompt = "You are Ada.", "Go gently."
    db.session.commit()
    return agents


def test_sealed_text_in_another_agents_row_does_not_open_even_with_its_key(two):
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
    assert problems() == [f"the wrapped data key does not belong to agent {other.id}: it was moved"]


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
def test_sealed_text_of_another_row_does_not_open(two, move):
    sql.tamper(move.format(agent=two[0].id))
    db.session.expire_all()

    with pytest.raises(SealingError, match="altered or moved"):
        two[0].memory_context()


def test_no_record_opens_in_another_ones_place(two):
    records = [two[0].record("memory_saved", sealed={"number": number}) for number in range(2)]
    db.session.commit()

    sql.tamper(
        f"UPDATE audit_logs a SET sealed = b.sealed FROM audit_logs b "
        f"WHERE a.id = {records[0].id} AND b.id = {records[1].id}"
    )
    db.session.expire_all()

    with pytest.raises(SealingError, match="altered or moved"):
        assert records[0].sealed
