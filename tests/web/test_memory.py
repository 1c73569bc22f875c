"""One memory's page: what became of it, without a word of it; and with its words under a grant."""

import pytest

from refine.extensions import db
from refine.models import Agent, AgentMemory, User
from refine.tools import RefinementTool
from tests import factories
from tests.web.conftest import Browser, links_of, words_of


@pytest.fixture
def agent(admin: User) -> Agent:
    made = factories.agent(
        "The blue door sticks in rain.",
        "The blue door sticks when it rains.",
        *(factories.text_of(25) for _ in range(10)),
        account=admin.account,
        name="Ada",
    )
    db.session.commit()
    return made


@pytest.fixture
def merged(agent: Agent) -> tuple[AgentMemory, AgentMemory, AgentMemory]:
    """Two memories, and the one that a session merged them into."""
    first, second = db.session.scalars(agent.ledger.core()).all()[:2]
    tool = RefinementTool(factories.session(agent))
    done = tool.execute(
        "consolidate", ids=[first.id, second.id], content="The blue door sticks in rain."
    )
    assert done["type"] == "consolidated", done
    tool.execute("complete", summary="tidy")
    db.session.commit()
    result = db.session.get(AgentMemory, done["id"])
    assert result is not None
    return first, second, result


def path(memory: AgentMemory) -> str:
    return f"/agents/{memory.agent_id}/memories/{memory.id}"


def said(browser: Browser, memory: AgentMemory) -> str:
    answer = browser.get(path(memory))
    assert answer.status_code == 200
    return words_of(answer.text)


def test_a_merged_memory_links_to_its_result(dashboard, merged):
    first, second, result = merged

    assert f"memories merged into #{result.id} in a session" in said(dashboard, first)
    assert f"memories merged from #{first.id} , #{second.id}" in said(dashboard, result)
    assert path(result) in links_of(dashboard.get(path(first)).text)


def test_a_grant_opens_its_text_and_the_differences(dashboard, admin, merged):
    factories.live_grant(merged[0].agent, admin)
    db.session.commit()

    page = dashboard.get(path(merged[2])).text

    assert page.count("The blue door sticks") > 1
    assert "<del>" in page
