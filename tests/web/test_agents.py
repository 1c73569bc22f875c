"""The list of agents: searched, filtered, sorted, its state in the URL."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, RefinementSession, User
from tests import factories
from tests.web.conftest import Browser, SignedIn, links_of, person, words_of


@pytest.fixture
def account(admin: User) -> Account:
    return admin.account


@pytest.fixture
def agents(account: Account) -> dict[str, Agent]:
    """One agent in each state, and one in none."""

    def made(name: str, tokens: int = 10, **fields: object) -> Agent:
        agent = factories.agent(account=account, name=name, core_token_budget=100, **fields)
        factories.ledger(agent, tokens)
        return agent

    def with_session(name: str, status: str, tokens: int, hours: int) -> Agent:
        agent, at = made(name, tokens), clock.now() - timedelta(hours=hours)
        session = RefinementSession.queue(agent, "weekly", at=at)
        kind = "worker_lost" if name == "Lost" else None
        session.finish(status, "so it ended", error_kind=kind, at=at)  # type: ignore[arg-type]
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


def test_agents_are_found_filtered_and_sorted(dashboard: Browser, agents: dict[str, Agent]) -> None:
    by_tokens = ["Inactive", "Over", "Running", "Paused", "declined", "Lost", "Failed"]
    by_name = ["declined", "Failed", "Inactive", "Lost", "Over", "Paused", "Running"]
    expected = {
        "?state=over_budget": ["Over"],
        "?state=running": ["Running"],
        "?state=failed": ["Failed"],
        "?state=lost": ["Lost"],
        "?state=declined": ["declined"],
        "?state=never": ["Inactive", "Over", "Paused"],
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
        "?sort=last&state=never": ["Over", "Paused", "Inactive"],
        "": by_name,
        "?sort=nonsense&state=nonsense": by_name,
    }

    assert {query: names(dashboard, query) for query in expected} == expected


def test_agents_sort_by_their_latest_session(dashboard: Browser, agents: dict[str, Agent]) -> None:
    assert names(dashboard, "?sort=last")[:4] == ["Running", "Failed", "Lost", "declined"]


def test_each_row_shows_share_state_and_last_session(
    dashboard: Browser, agents: dict[str, Agent]
) -> None:
    said = words_of(dashboard.get("/agents").text)

    assert "Over test/model 150 150% of 100 ! 50% over budget none yet" in said
    assert "Paused test/model 50 50% of 100 ‖ paused" in said
    assert "Inactive other/model 160 160% of 100 ○ not active" in said
    assert "Failed test/model 20 20% of 100 ✓ within budget" in said
    assert "✗ failed" in said


def test_the_next_slot_is_shown_if_there_is_one(
    dashboard: Browser, account: Account, agents: dict[str, Agent]
) -> None:
    account.next_due_at = clock.now().replace(year=2031, month=2, day=3)
    db.session.commit()

    with_slot = words_of(dashboard.get("/agents?q=over").text)
    without = words_of(dashboard.get("/agents?q=paused").text)
    account.paused = True
    db.session.commit()

    assert "3 Feb 2031" in with_slot
    assert "3 Feb 2031" not in without
    assert "3 Feb 2031" not in words_of(dashboard.get("/agents?q=over").text)


def test_an_undone_session_is_marked(dashboard: Browser, agents: dict[str, Agent]) -> None:
    session = db.session.scalars(
        db.select(RefinementSession).where(RefinementSession.status == "incomplete")
    ).one()
    session.undone_at = clock.now()
    db.session.commit()

    assert "◑ incomplete ↺ undone" in words_of(dashboard.get("/agents?q=lost").text)


def test_an_empty_list_explains_why_it_is_empty(dashboard: Browser) -> None:
    nothing, none_of_these = dashboard.get("/agents"), dashboard.get("/agents?q=x")

    assert "refine agent add NAME --account own --model MODEL" in words_of(nothing.text)
    assert "No agents match. Show all" in words_of(none_of_these.text)


def test_a_site_admin_sees_all_accounts_or_one(
    agents: dict[str, Agent], signed_in: SignedIn
) -> None:
    factories.agent(name="Eve", account=factories.account(name="Elsewhere"))
    browser = signed_in(person(site_admin=True))

    page = browser.get("/agents").text

    assert "Eve Elsewhere test/model" in words_of(page)
    assert "/agents?account=own" in links_of(page)
    assert "Eve" in names(browser)
    assert "Eve" not in names(browser, "?account=own")
    assert browser.get("/agents?account=nowhere").status_code == 404


def test_the_list_sums_up_the_agents_of_the_filter(
    dashboard: Browser, agents: dict[str, Agent]
) -> None:
    session = RefinementSession.queue(agents["Over"], "manual")
    session.cost_usd = Decimal("1.25")
    session.finish("completed", "so it ended")
    db.session.commit()

    said = words_of(dashboard.get("/agents").text)
    assert "7 agents : 510 tokens, 1 over budget; spent this month: $1.25" in said

    said = words_of(dashboard.get("/agents?state=paused").text)
    assert "1 agent of this filter: 50 tokens, 0 over budget; spent this month: $0.00" in said


def test_each_row_draws_the_mass_of_the_last_month(dashboard: Browser, account: Account) -> None:
    factories.agent(account=account, name="Newcomer")
    agent = factories.agent(account=account, core_token_budget=40)
    for days, tokens in ((40, 10), (20, 30)):
        at = clock.now() - timedelta(days=days)
        agent.ledger.remember(factories.text_of(tokens), "core", at=at)
    db.session.commit()

    page = dashboard.get("/agents").text

    assert 'aria-label="from 10 to 40 tokens"' in page
    assert 'aria-label="no tokens"' in page


def test_a_bar_goes_beyond_its_limit(dashboard: Browser, agents: dict[str, Agent]) -> None:
    page = dashboard.get("/agents?state=over_budget").text

    # two thirds of 150 tokens are within the budget of 100
    assert '<rect class="limit" x="65.7" width="2" height="8"/>' in page
    assert '<rect class="limit"' not in dashboard.get("/agents?state=paused").text
