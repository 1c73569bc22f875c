import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import select

from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import AuditLog, ChainHead
from refine.models.audit import PLATFORM
from refine.models.audit.anchor import anchor, missing_since, read_anchor
from refine.models.integrity import verify_all
from tests import factories, sql

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.fixture
def heads():
    """The ends of the agent's chain by its length, as backups kept them."""
    return {}


@pytest.fixture
def agent(app, heads):
    """An agent with a chain of four records; beside it an account's chain and the platform's."""
    agent = factories.agent(name="Ada")
    for n in range(4):
        agent.ledger.remember(f"the canary sings at {n}", "core")
        heads[n + 1] = head_of(agent)
    agent.account.record("sign_in")
    AuditLog.record("keys_rotated", chain=PLATFORM)
    db.session.commit()
    return agent


def taken():
    """An anchor as it comes back from where it was kept."""
    kept = json.dumps(anchor(NOW), indent=1)
    db.session.rollback()
    return read_anchor(kept)


def problems():
    db.session.rollback()
    db.session.expire_all()
    found = [verified.problem for verified in verify_all()]
    db.session.rollback()
    return [problem for problem in found if problem is not None]


def head_of(agent):
    head = db.session.scalars(select(ChainHead).where(ChainHead.agent_id == agent.id)).one()
    return head.sequence, head.hash, head.digest


def cut(agent, head):
    """Cut the tail of the agent's chain, and put back an older head from a backup.

    The memories of the records go as well: nothing in the database tells of them any more.
    """
    left = head[0]
    id_ = agent.id
    sql.tamper(
        f"DELETE FROM audit_logs WHERE agent_id = {id_} AND sequence > {left}",
        f"UPDATE chain_heads SET (sequence, hash, digest) = {head} WHERE agent_id = {id_}",
        f"""DELETE FROM agent_memories m WHERE agent_id = {id_} AND NOT EXISTS
              (SELECT FROM audit_logs l WHERE l.auditable_id = m.id::text)""",
        f"""UPDATE agents SET (core_count, core_tokens) =
              (SELECT count(*), coalesce(sum(token_estimate), 0) FROM agent_memories
               WHERE agent_id = {id_}) WHERE id = {id_}""",
    )


# -- what it holds ---------------------------------------------------------------------------------


def test_an_anchor_holds_the_head_of_every_chain(agent):
    records = db.session.scalars(select(AuditLog).order_by(AuditLog.chain_id, AuditLog.sequence))
    last = {record.chain_id: record for record in records}
    names = ["platform", f"account {agent.account_id}", f"agent {agent.id}"]

    taken_now = anchor(NOW)

    assert [record.sequence for record in last.values()] == [1, 1, 4]
    assert taken_now == {
        "format": "refine-anchor-1",
        "at": "2026-03-04T12:00:00.000000+00:00",
        "chains": [
            {"id": id_, "name": name, "sequence": record.sequence, "hash": record.hash}
            for (id_, record), name in zip(last.items(), names, strict=True)
        ],
    }


def test_an_anchor_is_of_now_in_utc_unless_another_time_is_given(app):
    before = datetime.now(UTC)

    of_now = datetime.fromisoformat(anchor()["at"])
    of_then = anchor(datetime(2026, 3, 4, 14, tzinfo=timezone(timedelta(hours=2))))

    assert before <= of_now <= datetime.now(UTC)
    assert of_then["at"] == "2026-03-04T12:00:00.000000+00:00"


def test_an_anchor_holds_no_content_and_no_names(agent):
    said = json.dumps(anchor())

    assert "canary" not in said
    assert "Ada" not in said


def test_a_chain_without_records_is_in_no_anchor(app):
    factories.agent("a memory")
    db.session.commit()

    assert db.session.scalars(select(ChainHead)).all()
    assert anchor()["chains"] == []


def test_taking_an_anchor_writes_nothing(agent):
    before = sql.snapshot()

    anchor()
    db.session.commit()

    assert sql.snapshot() == before


# -- what it shows ---------------------------------------------------------------------------------


def test_nothing_is_missing_if_nothing_happened(agent):
    assert list(missing_since(taken())) == []


def test_chains_that_went_on_and_chains_that_are_new_are_no_fault(agent):
    anchored = taken()
    agent.ledger.remember("a new memory", "core")
    factories.agent().ledger.remember("another memory", "core")
    agent.account.record("sign_in")
    db.session.commit()

    assert list(missing_since(anchored)) == []


@pytest.mark.parametrize("left", [3, 1])
def test_only_an_anchor_shows_a_tail_deleted_if_the_older_head_is_put_back(agent, heads, left):
    anchored = taken()

    cut(agent, heads[left])

    assert problems() == []
    assert list(missing_since(anchored)) == [f"agent {agent.id}: anchored record 4 is missing"]


def test_a_head_that_was_set_back_by_hand_shows_without_an_anchor(agent, heads):
    sequence, hash_, _ = heads[3]

    cut(agent, (sequence, hash_, "0" * 64))

    assert problems() == ["the chain's head was changed outside the application"]


def test_records_deleted_after_the_anchor_show_against_a_later_one(agent, heads):
    early = taken()
    agent.ledger.remember("a new memory", "core")
    db.session.commit()
    late = taken()

    cut(agent, heads[4])

    assert list(missing_since(early)) == []
    assert list(missing_since(late)) == [f"agent {agent.id}: anchored record 5 is missing"]


def test_a_tail_that_was_cut_and_grown_again_is_not_the_one_that_the_anchor_saw(agent, heads):
    anchored = taken()
    cut(agent, heads[3])
    db.session.expire_all()
    agent.ledger.remember("something else", "core")
    agent.ledger.remember("and something more", "core")
    db.session.commit()

    found = list(missing_since(anchored))

    assert problems() == []
    assert found == [f"agent {agent.id}: record 4 is not the one that was anchored"]


def test_a_chain_that_is_gone_altogether_is_missed(agent):
    anchored = taken()
    sql.tamper(
        f"DELETE FROM audit_logs WHERE agent_id = {agent.id}",
        f"DELETE FROM chain_heads WHERE agent_id = {agent.id}",
    )

    found = list(missing_since(anchored))

    assert problems() == ["its audit chain is gone"]
    assert found == [f"agent {agent.id}: anchored record 4 is missing"]


def test_every_chain_that_lost_records_is_named(agent):
    anchored = taken()
    sql.tamper("DELETE FROM audit_logs WHERE agent_id IS NOT NULL OR account_id IS NULL")

    found = list(missing_since(anchored))

    assert found == [
        "platform: anchored record 1 is missing",
        f"agent {agent.id}: anchored record 4 is missing",
    ]


def test_a_record_of_another_chain_does_not_stand_in_for_one_that_is_gone(agent, heads):
    anchored = taken()
    other = factories.agent()
    for _ in range(4):
        other.ledger.remember(factories.text_of(5), "core")
    db.session.commit()

    cut(agent, heads[3])

    assert len(list(missing_since(anchored))) == 1


# -- reading it back -------------------------------------------------------------------------------


def test_an_anchor_comes_back_from_its_json(agent):
    made = anchor(NOW)

    assert read_anchor(json.dumps(made)) == made
    assert read_anchor(json.dumps({**made, "chains": []})) == {**made, "chains": []}


def changed(**fields):
    """An anchor, with these fields of it, or of its one chain, otherwise."""
    chain = {"id": 1, "name": "platform", "sequence": 1, "hash": "0" * 64}
    whole = {"format": "refine-anchor-1", "at": "2026-03-04T12:00:00+00:00"}
    of_chain = {name: value for name, value in fields.items() if name in chain}
    return json.dumps({**whole, "chains": [{**chain, **of_chain}], **fields})


def test_a_text_that_is_not_an_anchor_is_refused(subtests):
    message = "this is not an anchor; give a file printed by `refine"
    for text in [
        "",
        "x",
        "{",
        "null",
        "7",
        "[]",
        '"refine-anchor-1"',
        "{}",
        "[" * 100_000,
        '{"format": "refine-anchor-1"}',
        changed(format="refine-anchor-2"),
        changed(format=None),
        changed(chains=None),
        changed(chains=7),
        changed(chains=["x"]),
        changed(chains=[{}]),
        changed(chains=[[1, "platform", 1, "0"]]),
        changed(id="1"),
        changed(id=True),
        changed(id=1.0),
        changed(sequence=None),
        changed(sequence="1"),
        changed(name=7),
        changed(name=None),
        changed(hash=7),
        changed(at=7),
        changed(at=None),
    ]:
        with subtests.test(text=text[:70]), pytest.raises(InvalidValue, match=message):
            read_anchor(text)
