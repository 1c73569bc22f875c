"""Anchors: what they hold, and what they show that verification alone cannot."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Agent, AuditLog, ChainHead
from refine.models.audit import PLATFORM
from refine.models.audit.anchor import anchor, missing_since, read_anchor
from tests import factories, sql
from tests.chains import problems

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
Head = tuple[int, str, str]


@pytest.fixture
def heads() -> dict[int, Head]:
    """The ends of the agent's chain by its length, as backups kept them."""
    return {}


@pytest.fixture
def agent(app: Flask, heads: dict[int, Head]) -> Agent:
    """An agent with a chain of four records; beside it an account's chain and the platform's."""
    agent = factories.agent(name="Ada")
    for n in range(4):
        agent.ledger.remember(f"the canary sings at {n}", "core")
        head = db.session.scalars(select(ChainHead).where(ChainHead.agent_id == agent.id)).one()
        heads[n + 1] = (head.sequence, head.hash, str(head.row_digest))
    agent.account.record("user_signed_in")
    AuditLog.record("keys_rotated", chain=PLATFORM)
    factories.agent("a memory in a chain without records", account=agent.account)
    db.session.commit()
    return agent


def taken() -> dict[str, Any]:
    """An anchor as it comes back from where it was kept."""
    kept = json.dumps(anchor(NOW), indent=1)
    db.session.rollback()
    return read_anchor(kept)


def cut(agent: Agent, head: Head) -> None:
    """Cut the tail of the agent's chain, and put back an older head from a backup.

    The memories of the records go as well: nothing in the database tells of them any more.
    """
    id_ = agent.id
    sql.tamper(
        f"DELETE FROM audit_logs WHERE agent_id = {id_} AND sequence > {head[0]}",
        f"UPDATE chain_heads SET (sequence, hash, row_digest) = {head} WHERE agent_id = {id_}",
        f"""DELETE FROM agent_memories m WHERE agent_id = {id_} AND NOT EXISTS
              (SELECT FROM audit_logs l WHERE l.auditable_id = m.id::text)""",
        f"""UPDATE agents SET (core_count, core_tokens) =
              (SELECT count(*), coalesce(sum(token_estimate), 0) FROM agent_memories
               WHERE agent_id = {id_}) WHERE id = {id_}""",
    )


def test_an_anchor_holds_the_head_of_every_chain_with_records(agent):
    records = db.session.scalars(select(AuditLog).order_by(AuditLog.chain_id, AuditLog.sequence))
    last = {record.chain_id: record for record in records}
    names = ["platform", f"account {agent.account_id}", f"agent {agent.id}"]
    before = sql.snapshot()

    taken_now = anchor(NOW.astimezone(timezone(timedelta(hours=2))))

    assert taken_now == {
        "format": "refine-anchor-1",
        "at": "2026-03-04T12:00:00.000000+00:00",
        "chains": [
            {"id": id_, "name": name, "sequence": record.sequence, "hash": record.hash}
            for (id_, record), name in zip(last.items(), names, strict=True)
        ],
        "erased": {"agents": [], "memories": []},
    }
    assert read_anchor(json.dumps(taken_now)) == taken_now
    assert sql.snapshot() == before


def test_nothing_is_missing_of_chains_that_were_continued(agent):
    anchored = taken()
    agent.ledger.remember("a new memory", "core")
    factories.agent().ledger.remember("another memory", "core")
    agent.account.record("user_signed_in")
    db.session.commit()

    assert list(missing_since(anchored)) == []


@pytest.mark.parametrize("left", [3, 1])
def test_only_an_anchor_shows_a_cut_tail_if_the_older_head_is_put_back(agent, heads, left):
    anchored = taken()
    for text in ("one", "two", "three", "four"):
        factories.agent().ledger.remember(text, "core")
    db.session.commit()

    cut(agent, heads[left])

    assert problems() == []
    assert list(missing_since(anchored)) == [f"agent {agent.id}: anchored record 4 is missing"]


def test_a_tail_that_was_cut_and_grown_again_is_not_the_anchored_one(agent, heads):
    anchored = taken()
    cut(agent, heads[3])
    db.session.expire_all()
    agent.ledger.remember("something else", "core")
    agent.ledger.remember("and something more", "core")
    db.session.commit()

    found = list(missing_since(anchored))

    assert problems() == []
    assert found == [f"agent {agent.id}: record 4 is not the one that was anchored"]


def changed(**fields: Any) -> str:
    """An anchor, with these fields of it, or of its one chain, otherwise."""
    chain = {"id": 1, "name": "platform", "sequence": 1, "hash": "0" * 64}
    erased: dict[str, list[int]] = {"agents": [], "memories": [7]}
    whole = {"format": "refine-anchor-1", "at": "2026-03-04T12:00:00+00:00", "erased": erased}
    of_chain = {name: value for name, value in fields.items() if name in chain}
    return json.dumps({**whole, "chains": [{**chain, **of_chain}], **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '"refine-anchor-1"',
        "[" * 100_000,
        '{"format": "refine-anchor-1"}',
        changed(format="refine-anchor-2"),
        changed(chains=None),
        changed(chains=["x"]),
        changed(chains=[{}]),
        changed(id="1"),
        changed(id=True),
        changed(sequence=None),
        changed(sequence="1"),
        changed(name=7),
        changed(hash=None),
        changed(at=7),
        changed(erased=None),
        changed(erased={"agents": [7]}),
        changed(erased={"agents": [7], "memories": ["7"]}),
    ],
)
def test_a_text_that_is_not_an_anchor_is_refused(text):
    with pytest.raises(InvalidValue, match="this is not an anchor; give a file printed by `refine"):
        read_anchor(text)
