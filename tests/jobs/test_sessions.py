"""The job that runs one session."""

from decimal import Decimal

import pytest
from flask import Flask
from redis import Redis

from refine.extensions import db
from refine.jobs.runs import refine_later, work_on
from refine.models import Agent
from refine.models.runs.session import Trigger
from tests import factories


@pytest.fixture
def agent(app: Flask) -> Agent:
    owner = factories.agent(model_id="rehearsal/x", account=factories.account(slug="demo"))
    factories.ledger(owner, *[25] * 20)
    db.session.commit()
    return owner


def test_the_cost_cap_stops_sessions_of_the_clock_but_not_requested_ones(
    redis: Redis, agent: Agent
) -> None:
    agent.account.monthly_cost_cap_usd = Decimal(0)
    by_trigger = {}
    triggers: tuple[Trigger, ...] = ("weekly", "cli")
    for trigger in triggers:
        by_trigger[trigger] = refine_later(agent, trigger)
        work_on(str(by_trigger[trigger].id))

    db.session.expire_all()
    weekly, requested = by_trigger.values()
    assert (weekly.status, weekly.llm_calls) == ("skipped", 0)
    assert weekly.end_reason == "the account's monthly cost cap of $0.00 is reached"
    assert requested.status == "completed"
