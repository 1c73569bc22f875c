"""A sweep is a mark on the account, which the ticks serve as they serve a slot."""

from datetime import timedelta

import pytest
from flask import Flask
from redis import Redis
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.jobs import tick
from refine.jobs.tick import run_tick, sweep_all
from refine.models import Account, Agent, AuditLog, RefinementSession
from refine.models.people.account import SLOT_IS_LATE_AFTER
from refine.models.runs.session.scheduling import NOTHING_TO_REFINE
from tests import factories, sql


@pytest.fixture
def account(app: Flask, redis: Redis) -> Account:
    made = factories.account(schedule="0 0 1 1 *")
    db.session.commit()
    return made


@pytest.fixture
def agents(account: Account) -> list[Agent]:
    """Three that need a session."""
    made = [factories.agent("a memory", account=account) for _ in range(3)]
    db.session.commit()
    return made


def swept_ids() -> list[int]:
    """Whose sessions were queued, each as often as it was."""
    db.session.rollback()
    return sorted(db.session.scalars(select(RefinementSession.agent_id)))


def requested(account: Account, **about: object) -> None:
    account.request_sweep(**about)  # type: ignore[arg-type]
    db.session.commit()


def test_a_sweep_is_served_over_several_ticks(account, agents, monkeypatch):
    requested(account)
    monkeypatch.setattr(tick, "LONGEST_STEP_SECONDS", 0.0)
    nothing = run_tick().queued
    monkeypatch.undo()

    done = [run_tick().queued for _ in range(2)]

    assert (nothing, done) == (0, [3, 0])
    assert swept_ids() == [agent.id for agent in agents]
    assert account.sweep_requested_at is None


def test_the_request_is_recorded_once(account, agents):
    user = factories.user(account=account)
    requested(account, user=user)
    since = account.sweep_requested_at

    requested(account, user=user)

    assert account.sweep_requested_at == since
    (record,) = db.session.scalars(select(AuditLog).where(AuditLog.action == "sweep_requested"))
    assert record.user_id == user.id


def test_an_agent_that_declines_is_not_asked_again_by_the_same_sweep(account, agents):
    requested(account)
    with db.engine.begin() as elsewhere:
        elsewhere.exec_driver_sql(f"SELECT FROM agents WHERE id = {agents[-1].id} FOR UPDATE")
        run_tick()
    for session in db.session.scalars(select(RefinementSession)):
        session.finish("declined", "the agent declined")
    db.session.commit()
    assert account.sweep_requested_at is not None

    run_tick()

    assert swept_ids() == [agent.id for agent in agents]


@pytest.mark.parametrize(("late", "is_over"), [(timedelta(0), False), (SLOT_IS_LATE_AFTER, True)])
def test_a_failing_agent_stops_no_other_and_is_given_up_after_an_hour(
    account, agents, late, is_over
):
    requested(account, at=clock.now() - late)
    ended = RefinementSession.start(agents[0], at=clock.now() - timedelta(days=1))
    ended.finish("completed", "the agent completed it")
    agents[0].last_refinement_at = None
    db.session.commit()
    sql.tamper(f"UPDATE refinement_sessions SET mass_after = 0 WHERE id = '{ended.id}'")
    db.session.expire_all()

    run_tick()

    assert swept_ids() == [agent.id for agent in agents]  # the first has the ended one alone
    assert (account.sweep_requested_at is None) is is_over


def test_all_accounts_are_swept_at_once_and_counted(account, agents):
    elsewhere = factories.agent("a memory")
    factories.agent(account=account)
    db.session.commit()

    outcomes = sweep_all()

    assert [(each.account.id, each.outcome, each.agents) for each in outcomes] == [
        (account.id, "queued", 3),
        (account.id, NOTHING_TO_REFINE, 1),
        (elsewhere.account_id, "queued", 1),
    ]
    assert swept_ids() == [*(agent.id for agent in agents), elsewhere.id]
