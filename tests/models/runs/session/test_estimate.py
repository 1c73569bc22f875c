"""What sessions of many agents may cost."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.models.runs.session.scheduling import LOOKS_BACK, estimate
from tests import factories

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def account(app: Flask) -> Account:
    return factories.account()


def cost(owner: Agent, *usd: str, at: datetime = AT, llm_calls: int = 3) -> int:
    """A session of each of these costs; the agent's id."""
    for each in usd:
        session = RefinementSession.queue(owner, "manual", at=at)
        session.llm_calls, session.cost_usd = llm_calls, Decimal(each)
        session.finish("completed", "so it ended", at=at)
    db.session.flush()
    return owner.id


def test_an_agent_counts_with_its_mean_or_without_sessions_with_that_of_the_others(account):
    known = [cost(factories.agent(account=account), *usd) for usd in (("1", "3"), ("10",))]
    cost(factories.agent(), "1000")

    assert estimate(AT, known) == Decimal(12)
    assert estimate(AT, [*known, factories.agent(account=account).id]) == Decimal(18)


def test_nothing_is_known_without_a_session_that_asked_a_model(account):
    agent = factories.agent(account=account)
    cost(agent, "0", llm_calls=0)
    cost(agent, "7", at=AT - LOOKS_BACK)

    assert estimate(AT, [agent.id]) is None
    assert estimate(AT, []) is None
