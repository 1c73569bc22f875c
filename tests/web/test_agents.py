"""The list of agents: searched, filtered, sorted, its state in the URL."""

import re
from datetime import timedelta

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent
from tests import factories
from tests.web.conftest import Browser, links_of, words_of


@pytest.fixture
def agents(account: Account) -> dict[str, Agent]:
    """One agent in each state, and one in none."""

    def made(name: str, tokens: int = 10, **fields: object) -> Agent:
        agent = factories.agent(account=account, name=name, core_token_budget=100, **fields)
        factories.ledger(agent, tokens)
        return agent

    def with_session(name: str, status: str, tokens: int, hours: int) -> Agent:
        agent, at = made(name, tokens), clock.now() - timedelta(hours=hours)
        kind = "worker_lost" if name == "Lost" else None
        factories.ended(agent, status, error_kind=kind, at=at)
        return agent

    listed = [
        with_session("Failed", "failed", 20, 1),
        with_session("Lost", "incomplete", 30, 2),
        with_session("declined", "declined", 40, 3),
        made("Over", 150),
        made("Paused", 50, paused=True),
        made("Inactive", 160, active=False, model_id="other/model"),
    ]
    running = made("Running", 60)
    factories.session(running)
    db.session.commit()
    return {agent.name: agent for agent in [*listed, running]}


def names(browser: Browser, query: str = "") -> list[str]:
    page = browser.get(f"/agents{query}").text
    return re.findall(r'scope="row"><a href="/agents/\d+">([^<]+)</a>', page)


def test_agents_are_found_filtered_and_sorted(dashboard, agents):
    by_tokens = ["Inactive", "Over", "Running", "Paused", "declined", "Lost", "Failed"]
    latest_first, never = ["Running", "Failed", "Lost", "declined"], ["Over", "Paused", "Inactive"]
    by_name = ["declined", "Failed", "Inactive", "Lost", "Over", "Paused", "Running"]
    worst_first = ["Failed", "Over", "declined", "Inactive", "Lost", "Paused", "Running"]
    expected = {
        "?state=over_budget": ["Over"],
        "?state=running": ["Running"],
        "?state=failed": ["Failed"],
        "?state=lost": ["Lost"],
        "?state=declined": ["declined"],
        "?state=never": ["Over", "Inactive", "Paused"],
        "?state=paused": ["Paused"],
        "?state=inactive": ["Inactive"],
        "?q=OVER": ["Over"],
        "?q=other/": ["Inactive"],
        "?q=%25": [],
        "?q=_": [],
        "?q=e&state=paused": ["Paused"],
        "?q=x&state=paused": [],
        "?sort=share": by_tokens,
        "?sort=tokens": by_tokens,
        "?sort=last": [*latest_first, *never],
        "?sort=last&state=never": never,
        "?sort=name": by_name,
        "": worst_first,
        "?sort=nonsense&state=nonsense": worst_first,
    }

    assert {query: names(dashboard, query) for query in expected} == expected


def test_a_site_admin_sees_all_accounts_or_one(agents, site_admins):
    factories.agent(name="Eve", account=factories.account(name="Elsewhere"))
    db.session.commit()

    page, theirs = site_admins.get("/agents").text, site_admins.get("/agents?account=own").text

    assert "Eve Elsewhere" in words_of(page)
    assert "In every row: account Own account" in words_of(theirs)
    assert "Agents · Own account · Refine</title>" in theirs
    assert "/agents?account=own" in links_of(page)
    assert "Eve" in names(site_admins)
    assert "Eve" not in names(site_admins, "?account=own")
    assert site_admins.get("/agents?account=nowhere").status_code == 404


def test_the_list_tells_its_filter_its_order_and_how_many_match(dashboard, agents):
    page = dashboard.get("/agents?state=never&q=ov").text

    assert "Agents · “ov” · never refined · Refine</title>" in page
    assert "1 of 7 agents" in words_of(page)
    assert '<option value="worst" selected>worst first, then by name</option>' in page
    assert dashboard.get("/agents?sort=share").text.count('aria-sort="descending"') == 1


def test_a_row_states_the_budget_once(dashboard, agents):
    row = words_of(dashboard.get("/agents?q=over").text).partition(" Next session ")[2]

    assert "150 of 100 ! 50% over budget" in row
    assert re.findall(r"\b150\b|%", row) == ["150", "%"]


def test_what_all_rows_say_is_said_once_above_them(dashboard, agents):
    of_one_model = words_of(dashboard.get("/agents?state=never&q=test/").text)
    of_two_models = words_of(dashboard.get("/agents?state=never").text)

    assert "In every row: model test/model." in of_one_model
    assert of_one_model.count("test/model") == 1
    assert "In every row" not in of_two_models
    assert "other/model" in of_two_models


def test_one_row_keeps_its_columns(dashboard, agents):
    assert words_of(dashboard.get("/agents?q=other/").text).count("other/model") == 1
