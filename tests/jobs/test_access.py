"""The job that asks an agent for access, and the tick that ends grants and requests."""

from datetime import timedelta

import pytest
from flask import Flask

from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.models import AccessGrant, Agent, User
from tests import factories, sql


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = factories.agent(
        "a canary sings",
        name="Ada",
        model_id="rehearsal/ada",
        account=factories.account(slug="demo"),
    )
    db.session.commit()
    return made


@pytest.fixture
def reader(agent: Agent) -> User:
    made = factories.user(account=agent.account)
    db.session.commit()
    return made


def aged(grant: AccessGrant, **span: float) -> None:
    db.session.commit()
    seconds = timedelta(**span).total_seconds()
    sql.rewrite(
        *(
            f"UPDATE access_grants SET {column} = {column} - interval '{seconds} seconds' "
            f"WHERE id = '{grant.id}'"
            for column in ("created_at", "asked_at", "granted_at", "expires_at", "heartbeat_at")
        )
    )
    db.session.expire_all()


def test_the_tick_ends_grants_and_requests_in_time(redis, agent, reader):
    others = [factories.agent(account=agent.account) for _ in range(2)]
    granted = factories.live_grant(agent, reader)
    asked, requested = (factories.grant(other, user_id=reader.id) for other in others)
    assert asked.claim()
    for grant, hours in ((granted, 1), (asked, 0.1), (requested, 24)):
        aged(grant, hours=hours)

    done, again = run_tick(), run_tick()

    db.session.expire_all()
    assert (done.access_ended, done.lost, again.access_ended, again.lost) == (2, 1, 0, 0)
    assert [grant.status for grant in (granted, asked, requested)] == ["ended", "failed", "lapsed"]


def test_a_grant_that_cannot_be_ended_delays_no_other(redis, agent, reader):
    broken, whole = (
        factories.live_grant(agent, reader),
        factories.live_grant(factories.agent(account=agent.account), reader),
    )
    aged(broken, hours=3)
    aged(whole, hours=2)

    with sql.trigger("BEFORE UPDATE ON access_grants", when=f"NEW.id = '{broken.id}'"):
        done = run_tick()

    db.session.expire_all()
    assert (broken.status, whole.status) == ("granted", "ended")
    assert (done.access_ended, done.faults) == (1, 1)
