"""What sessions of many agents may cost."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from flask import Flask
from sqlalchemy import select

from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.models.runs.session.prospects import LOOKS_BACK, Estimate, estimate
from tests import factories

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def account(app: Flask) -> Account:
    return factories.account()


def of(account: Account) -> Estimate:
    ids = select(Agent.id).where(Agent.account_id == account.id)
    return estimate(AT, db.session.scalars(ids).all())


def cost(owner: Agent, *usd: str, at: datetime = AT, **fields: object) -> None:
    """A session of each of these costs."""
    for each in usd:
        session = RefinementSession.queue(owner, "manual", at=at)
        for name, value in {"llm_calls": 3, "cost_usd": Decimal(each), **fields}.items():
            setattr(session, name, value)
        session.finish("completed", "so it ended", at=at)
    db.session.flush()


def test_each_agent_counts_with_the_mean_and_the_dearest_of_its_own_sessions(
    account: Account,
) -> None:
    cost(factories.agent(account=account), "1", "3")
    cost(factories.agent(account=account), "10")
    cost(factories.agent(), "1000")

    assert of(account) == Estimate(2, 0, Decimal(12), Decimal(13), is_partial=False)


def test_an_agent_without_sessions_counts_as_the_mean_and_the_dearest_of_the_others(
    account: Account,
) -> None:
    cost(factories.agent(account=account), "1", "3")
    cost(factories.agent(account=account), "4")
    factories.agent(account=account)

    assert of(account) == Estimate(3, 1, Decimal(9), Decimal(11), is_partial=False)


def test_nothing_is_known_without_a_session_that_asked_a_model(account: Account) -> None:
    agent = factories.agent(account=account)
    cost(agent, "0", llm_calls=0)
    cost(agent, "7", at=AT - LOOKS_BACK)

    assert of(account) == Estimate(1, 1, None, None, is_partial=False)


def test_calls_of_unknown_cost_are_told(account: Account) -> None:
    cost(factories.agent(account=account), "2", unpriced_calls=1)

    assert of(account) == Estimate(1, 0, Decimal(2), Decimal(2), is_partial=True)


def test_the_cost_of_no_agents_is_unknown(account: Account) -> None:
    assert of(account) == Estimate(0, 0, None, None, is_partial=False)
