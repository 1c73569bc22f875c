import threading
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from refine.errors import ChangedMeanwhile
from refine.extensions import db
from refine.models import Account, Agent, AuditLog, ChainHead
from refine.models.audit import PLATFORM
from refine.models.audit.verification import Verification
from refine.models.integrity import verify_all
from tests import factories, sql

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize("owner", ["agent", "account", "platform"])
def test_the_sealed_part_is_encrypted_at_rest(app, owner):
    agent = factories.agent()
    chains = {"agent": agent.chain, "account": agent.account.chain, "platform": PLATFORM}

    record = AuditLog.record("user_signed_in", chain=chains[owner], sealed={"content": "c4n4ry"})
    db.session.commit()

    stored = sql.value("SELECT audit_logs::text FROM audit_logs")
    assert "c4n4ry" not in stored
    assert b"c4n4ry".hex() not in stored
    assert record.sealed == {"content": "c4n4ry"}


def test_agent_account_and_platform_have_a_chain_each(app):
    agent = factories.agent()
    other = factories.agent(account=agent.account)

    for _ in range(2):
        agent.record("memory_saved")
        other.record("memory_saved")
        agent.account.record("memory_saved")
        AuditLog.record("memory_saved", chain=PLATFORM)

    heads = db.session.scalars(select(ChainHead).order_by(ChainHead.id)).all()
    assert [(head.agent_id, head.account_id, head.sequence) for head in heads] == [
        (None, None, 2),
        (None, agent.account_id, 2),
        (agent.id, None, 2),
        (other.id, None, 2),
    ]


def test_the_first_record_of_all_begins_the_platforms_chain(app):
    sql.tamper("DELETE FROM chain_heads")

    record = AuditLog.record("keys_rotated", chain=PLATFORM)

    assert (record.sequence, db.session.scalars(select(ChainHead)).one().hash) == (1, record.hash)


def test_a_rolled_back_record_leaves_no_gap(app):
    agent = factories.agent()
    agent.record("memory_saved")
    db.session.commit()
    agent.record("memory_discarded")
    db.session.rollback()

    agent.record("memory_saved")

    assert [(record.sequence, record.action) for record in factories.records(agent)] == [
        (1, "memory_saved"),
        (2, "memory_saved"),
    ]


def test_nothing_is_recorded_where_the_head_does_not_move_on(app):
    agent = factories.agent()
    db.session.commit()
    unmoved = sql.trigger("BEFORE UPDATE ON chain_heads", "RETURN NULL")

    with unmoved, pytest.raises(ChangedMeanwhile):
        agent.record("memory_saved")

    assert "memory_saved" not in {each.action for each in factories.records(agent)}


def test_an_unrecorded_change_is_recorded_for_the_account_as_well(app):
    agent = factories.agent()
    agent.record("refinement_queued")
    db.session.commit()
    before = len(factories.records(agent))

    agent.paused = True
    db.session.commit()
    agent.last_refinement_at = NOW  # decides nothing that a digest covers
    db.session.commit()

    (record,) = factories.records(agent)[before:]
    assert (record.action, record.account_id) == ("row_updated", agent.account_id)
    assert record.rows is not None
    ((name, (_, after)),) = record.rows.items()
    assert (name, after) == (f"Agent {agent.id}", agent.row_digest)


def in_threads(app, *works):
    """Run each in a thread with a connection and a context of its own, all at once."""
    barrier, faults = threading.Barrier(len(works)), []

    def run(work):
        with app.app_context():
            try:
                barrier.wait(10)
                work()
            except BaseException as fault:  # noqa: BLE001
                faults.append(fault)
            finally:
                db.session.remove()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []


def test_a_record_follows_the_newest_one_written_by_others(app):
    agent = factories.agent()
    agent.record("memory_saved")
    db.session.commit()
    head = db.session.scalars(select(ChainHead).where(ChainHead.agent_id == agent.id)).one()
    agent_id = agent.id

    def write():
        db.session.get_one(Agent, agent_id).record("memory_saved")
        db.session.commit()

    in_threads(app, write)
    agent.record("memory_saved")

    assert [record.sequence for record in factories.records(agent)] == [1, 2, 3]
    assert head.sequence == 3


@pytest.mark.parametrize("chain", ["agent", "account", "platform"])
def test_threads_that_write_to_one_chain_leave_no_gap_and_no_fork(app, chain):
    agent = factories.agent()
    db.session.commit()
    agent_id, account_id = agent.id, agent.account_id
    db.session.commit()

    def write():
        for _ in range(20):
            owner = {
                "agent": lambda: db.session.get_one(Agent, agent_id).chain,
                "account": lambda: db.session.get_one(Account, account_id).chain,
                "platform": lambda: PLATFORM,
            }[chain]()
            AuditLog.record("memory_saved", chain=owner)
            db.session.commit()

    in_threads(app, write, write)

    records = db.session.scalars(select(AuditLog).order_by(AuditLog.sequence)).all()
    assert [record.sequence for record in records] == list(range(1, 41))
    db.session.commit()
    assert not [verified.problem for verified in verify_all() if verified.problem]


def test_an_acknowledgement_of_no_failure_has_no_record(app):
    Verification.acknowledge_all(user=factories.user(site_admin=True), at=NOW)

    assert db.session.scalars(select(AuditLog)).all() == []
