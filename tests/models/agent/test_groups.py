"""Agents grouped by a reason."""

import pytest
from flask import Flask
from sqlalchemy import null

from refine.models import Account, Agent
from refine.models.agent import eligibility
from refine.models.agent.groups import NAMED, Group, Named, grouped_by
from tests import factories


@pytest.fixture
def account(app: Flask) -> Account:
    return factories.account()


def test_agents_are_grouped_by_why_they_may_not_be_asked(account: Account) -> None:
    for name in ("cy", "Bo", "Al"):
        factories.agent(account=account, name=name, active=False)
    ready = factories.agent(account=account, name="Di")

    groups = grouped_by(
        eligibility.why_unavailable(automatic=False), Agent.account_id == account.id
    )

    inactive = "the agent is not active"
    assert list(groups) == [inactive, None]
    assert [agent.name for agent in groups[inactive].named] == ["Al", "Bo", "cy"]
    assert groups[None] == Group(None, [ready.id], ["Di"])
    assert groups[None].named == [Named("Di", ready.id)]


def test_names_the_first_agents_of_a_large_group(account: Account) -> None:
    for number in range(NAMED + 2):
        factories.agent(account=account, name=f"{number:02}")

    (group,) = grouped_by(null(), Agent.account_id == account.id).values()

    assert (group.number, len(group.names)) == (NAMED + 2, NAMED)
