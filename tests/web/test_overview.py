"""The front page: what needs attention first, then how things go."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Account, RefinementSession, User
from tests import factories
from tests.web.conftest import Browser, WithSettings, browser_of, links_of, said, words_of

pytestmark = pytest.mark.usefixtures("ticking")


def attention(browser: Browser, path: str = "/") -> str:
    return said(browser, path).partition("Needs attention ")[2].partition(" The last 90 days")[0]


# -- states ----------------------------------------------------------------------------------------


def test_each_count_matches_the_list_it_links_to(dashboard, account):
    for status in ("failed", "rolled_back", "declined"):
        for _ in range(6):
            factories.ended(
                factories.agent("one two three", account=account, core_token_budget=1), status
            )
    db.session.commit()
    page = dashboard.get("/").text

    for state, count in {"failed": 6, "rolled_back": 6, "declined": 6, "over_budget": 18}.items():
        (link,) = [link for link in links_of(page) if f"state={state}" in link]
        assert f"{count} agents " in words_of(page)
        assert dashboard.get(link).text.count('scope="row"><a href="/agents/') == count


def test_an_agent_that_stays_above_its_budget_is_called_stuck(dashboard, account):
    agent = factories.agent("one two three", account=account, core_token_budget=1)
    for refused in (1, 2):
        factories.ended(agent, "completed", stats={"refused_doubtful": refused})
    db.session.commit()

    assert "stuck above its budget since 2 sessions, 3 edits refused" in attention(dashboard)


def test_an_acknowledged_session_needs_no_attention(dashboard, account, admin):
    factories.ended(factories.agent("one", account=account, name="Ada"), "failed")
    db.session.commit()
    session_id = db.session.scalar(db.select(RefinementSession.id))

    answer = dashboard.submit(f"/sessions/{session_id}/seen", {"from": "overview"})

    assert answer.location == "/"
    assert "Nothing needs attention." in attention(dashboard)
    assert f"by {admin.email}" in said(dashboard, f"/sessions/{session_id}")
    assert "session acknowledged" in said(dashboard, "/audit")
    assert "Ada" in said(dashboard, "/agents?state=failed")


def test_an_agent_that_cannot_be_asked_is_not_offered_a_session(dashboard, account):
    erased = factories.agent("one", account=account, name="Loam")
    inactive = factories.agent("one", account=account, name="Fathom")
    for agent in (erased, inactive):
        factories.ended(agent, "failed")
    inactive.active = False
    factories.erase(erased)
    db.session.commit()

    shown = attention(dashboard)

    assert "2 agents with a failed session" in shown
    assert "Refine now" not in shown
    assert shown.count("Acknowledge") == 2


def test_a_missed_slot_needs_attention_unless_paused(dashboard, account):
    account.next_due_at = clock.now() - timedelta(minutes=61)
    db.session.commit()
    missed = attention(dashboard)
    account.paused = True
    db.session.commit()

    assert "Own account: a slot was missed" in missed
    assert attention(dashboard) == "✓ Nothing needs attention."


@pytest.fixture
def without_key(admin: User, with_settings: WithSettings) -> Callable[..., Browser]:
    """Have somebody sign in while no API key is set."""

    def sign_in(who: User = admin, **variables: str) -> Browser:
        db.session.commit()
        browser = browser_of(with_settings(OPENROUTER_API_KEY="", **variables))
        browser.sign_in(who.email)
        return browser

    return sign_in


def test_without_a_key_the_page_first_says_that_nobody_can_be_asked(account, without_key):
    for _ in range(3):
        factories.agent("one", account=account)
    RefinementSession.queue(factories.agent("one", account=account), "manual")

    browser = without_key()

    first = "✗ No agent of Own account can be asked: no API key is set. Set OPENROUTER_API_KEY"
    assert attention(browser).startswith(first)
    assert '<li class="bad">' in browser.get("/").text


# -- the last months -------------------------------------------------------------------------------


@pytest.fixture
def quarter(account: Account) -> None:
    """Sessions of the last 90 days, one before it, one of another account."""
    agent = factories.agent("one", account=account)
    now = clock.now()
    factories.ended(
        agent, "completed", at=now, mass_before=100, memories_before=4, cost_usd=Decimal("0.5")
    )
    factories.ended(agent, "declined", at=now - timedelta(days=1))
    factories.ended(agent, "failed", at=now - timedelta(days=2), error_kind="worker_lost")
    factories.ended(agent, "failed", at=now - timedelta(days=28), error_kind="timeout")
    factories.ended(agent, "failed", at=now - timedelta(days=91), cost_usd=Decimal(7))
    factories.ended(factories.agent("one"), "failed", at=now)
    db.session.commit()


def test_each_figure_matches_the_list_it_links_to(dashboard, quarter):
    page = dashboard.get("/").text.partition("The last 90 days")[2]
    links = [link for link in links_of(page) if link.startswith("/sessions?")]

    listed = {
        link.partition("&since")[0].partition("since")[0]: dashboard.get(link).text.count(
            'role="row"'
        )
        for link in links
    }

    # the head of the table is a row, too
    assert {link: rows - 1 for link, rows in listed.items()} == {
        "/sessions?": 4,
        "/sessions?status=completed": 1,
        "/sessions?status=declined": 1,
        "/sessions?status=failed": 2,
        "/sessions?error=worker_lost": 1,
    }


# -- whose -----------------------------------------------------------------------------------------


def test_a_site_admin_sees_all_accounts_or_one(account, quarter, site_admins):
    everything, one = said(site_admins, "/"), said(site_admins, "/?account=own")

    assert "2 agents in all accounts" in everything
    assert "Sessions 5" in everything
    assert "1 agent in Own account" in one
    assert "Sessions 4" in one
