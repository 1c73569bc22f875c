"""The menu and an agent's tabs: what they mark as the current page."""

import re

import pytest

from refine.extensions import db
from refine.models import Agent, User
from tests import factories
from tests.web.conftest import Browser


@pytest.fixture
def agent(admin: User) -> Agent:
    agent = factories.agent("one", account=admin.account)
    db.session.commit()
    return agent


def marked_in(page: str) -> list[str]:
    return re.findall(r'aria-current="page">([^<]+)', page)


@pytest.mark.parametrize(
    ("path", "area"),
    [
        ("/agents", "Agents"),
        ("/agents/many?work=refine", "Agents"),
        ("/sessions", "Sessions"),
        ("/schedule/run", "Schedule"),
    ],
)
def test_each_page_of_an_area_marks_the_area(
    dashboard: Browser, agent: Agent, path: str, area: str
) -> None:
    assert area in marked_in(dashboard.get(path).text)
