"""The clock's daily verification, in slices."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.jobs.verifying import verify_slice
from refine.models import Agent, AuditLog, Verification, WrappedKey
from refine.models.audit import PLATFORM
from tests import factories, sql

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def agent(app: Flask) -> Agent:
    """An agent with a memory, in a database that is a day old."""
    WrappedKey.platform().created_at = NOW - DAY
    agent = factories.agent()
    agent.ledger.remember("a memory", "core")
    db.session.commit()
    return agent


def verify(at: datetime, seconds: float = 60) -> Verification:
    verify_slice(at, time.monotonic() + seconds)
    newest = select(Verification).order_by(Verification.id.desc()).limit(1)
    return db.session.scalars(newest).one()


def forge(agent: Agent) -> None:
    sql.tamper(f"UPDATE agents SET model_id = 'rehearsal/yes' WHERE id = {agent.id}")


def test_everything_is_verified_once_a_day(agent):
    first = verify(NOW)
    again = verify(NOW + DAY - timedelta(minutes=1))
    next_day = verify(NOW + DAY)

    assert first is not None
    assert (first.ended_at, first.problems, first.memories) == (NOW, 0, 1)
    assert again is first
    assert next_day is not first


def test_a_new_installation_is_not_verified_before_its_second_day(app):
    WrappedKey.platform().created_at = NOW - DAY + timedelta(minutes=1)
    db.session.commit()

    verify_slice(NOW, time.monotonic())

    assert db.session.scalars(select(Verification)).all() == []


def test_a_slice_ends_in_time_and_the_next_continues(agent):
    begun = verify(NOW, seconds=0)
    assert (begun.ended_at, begun.records) == (None, 1)

    found = verify(NOW, seconds=0)

    assert (found.id, found.ended_at) == (begun.id, NOW)
    assert (found.records, found.memories) == (1, 1)


def test_counts_only_one_of_two_clocks_that_verify_the_same_chains(agent):
    counted = "UPDATE verifications SET after_chain_id = 9, chains = 7"
    with sql.just_before("SELECT chain_heads.id, chain_heads.sequence \n", counted):
        found = verify(NOW, seconds=0)

    assert (found.after_chain_id, found.chains) == (9, 7)


def test_the_tick_verifies_and_records_a_failure(agent):
    forge(agent)

    run_tick(NOW)

    failed = Verification.watch().last
    assert failed is not None
    assert failed.first_problem == (
        f"agent {agent.id}: Agent {agent.id} was changed in the database, not by Refine"
    )
    record = db.session.scalars(select(AuditLog).filter_by(action="verification_failed")).one()
    assert record.data == {"problems": 1, "first": failed.first_problem}


def test_an_alarm_counts_the_problems_besides_the_first(agent):
    found = Verification.begin("clock", NOW)
    for problem in ("one", "two", "three"):
        found.note_problem(problem)
    found.end(NOW)
    db.session.commit()

    alarm = Verification.watch().alarm

    assert alarm is not None
    assert alarm.alarm_text == "one, and 2 more problems (verified at 2026-03-04 12:00 UTC)"


def test_a_failure_is_reported_even_if_the_platforms_chain_was_altered(agent):
    AuditLog.record("keys_rotated", chain=PLATFORM)
    db.session.commit()
    sql.tamper("UPDATE chain_heads SET sequence = 9 WHERE agent_id IS NULL AND account_id IS NULL")

    failed = verify(NOW)

    assert failed is not None
    assert failed.first_problem == "platform: the chain ends at record 1, its head says 9"


# What somebody who can write to the database might do so that nothing more is verified.
STOPPING = {
    "a token that never expires": (
        "INSERT INTO api_tokens (kind, account_id, token_hash, hint, expires_at) "
        "VALUES ('platform', {account}, 'x', 'y', 'infinity')"
    ),
    "an agent of no date": "UPDATE agents SET identity_changed_at = 'infinity' WHERE id = {agent}",
    "a memory of no date": (
        "UPDATE agent_memories SET created_at = 'infinity' WHERE agent_id = {agent}"
    ),
    "a record of no date": (
        "INSERT INTO audit_logs (chain_id, sequence, action, data, created_at, hash) "
        "SELECT id, 99, 'x', '{{}}', 'infinity', 'x' FROM chain_heads WHERE agent_id = {agent}"
    ),
    "a chain of no date": (
        "UPDATE chain_heads SET verified_at = 'infinity' WHERE agent_id = {agent}"
    ),
    "a garbled key": "UPDATE data_keys SET wrapped = 'x' WHERE id = {key}",
    "a key under an unknown one": "UPDATE data_keys SET wrapped_by = 'x' WHERE id = {key}",
    "a verification in the future": (
        "INSERT INTO verifications (id, begun_by, started_at, ended_at) "
        "VALUES (9999, 'clock', '2100-01-01', '2100-01-01')"
    ),
}


@pytest.mark.parametrize("trick", STOPPING)
def test_nothing_in_the_database_stops_the_verification_of_later_chains(agent, trick, caplog):
    later = factories.agent()
    later.ledger.remember("another memory", "core")
    db.session.commit()
    first = verify(NOW)
    assert first is not None
    assert first.problems == 0
    names = {"account": agent.account_id, "agent": agent.id, "key": agent.data_key_id, "now": NOW}
    statement, later_id = STOPPING[trick].format(**names), later.id
    db.session.commit()
    sql.tamper(statement)
    forge(later)

    run_tick(NOW + DAY)

    db.session.expire_all()
    assert f"Agent {later_id} was changed in the database, not by Refine" in caplog.text
    assert Verification.watch().alarm is not None
