"""The front page: what needs attention first, then how things go."""

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, PutAside, RefinementSession, User
from tests import factories
from tests.web.conftest import Browser, WithSettings, browser_of, links_of, said, words_of

pytestmark = pytest.mark.usefixtures("ticking")


def attention(browser: Browser, path: str = "/") -> str:
    return said(browser, path).partition("Needs attention ")[2].partition(" The last 90 days")[0]


# -- states ----------------------------------------------------------------------------------------


def test_each_count_matches_the_list_it_links_to(dashboard, account):
    for status in ("failed", "rolled_back", "declined", "completed"):
        for _ in range(11):
            factories.ended(
                factories.agent("one two three", account=account, core_token_budget=1), status
            )
    db.session.commit()
    page = dashboard.get("/").text

    assert "44 agents need attention." in words_of(page)
    # whoever declines above the budget is stuck there, too
    for cause, count in {"failed": 11, "rolled_back": 11, "stuck": 22}.items():
        (link,) = [link for link in links_of(page) if f"cause={cause}" in link]
        assert f"All {count} agents" in words_of(page)
        assert dashboard.get(link).text.count('scope="row"><a href="/agents/') == count


def test_an_agent_over_its_budget_is_told_the_ways_down(dashboard, account):
    agent = factories.agent(account=account, core_token_budget=800)
    factories.ledger(agent, 1_000, 780)
    db.session.commit()
    growing = attention(dashboard)
    for refused in (1, 2):
        factories.ended(agent, "completed", stats={"refused_doubtful": refused})
    db.session.commit()
    stuck = attention(dashboard)

    ways = "A session may take 25%: 3 sessions or more to 800, or raise the budget to 1,800 ."
    assert ways in growing
    assert f"No effect in 2 sessions, 3 edits refused. {ways}" in stuck
    assert ("Refine now" in growing, "Refine now" in stuck) == (True, False)

    agent.refinement_threshold = 1
    db.session.commit()
    assert "A session may take nothing, or raise the budget to 1,800 ." in attention(dashboard)


def test_failures_of_one_cause_say_once_what_is_wrong_and_what_to_do(dashboard, account):
    for _ in range(2):
        factories.ended(
            factories.agent("one", account=account),
            "failed",
            "the key is refused",
            error_kind="unauthorized",
        )
    db.session.commit()

    shown = attention(dashboard)

    assert "2 agents with a failed session: unauthorized The key is refused. Check" in shown
    assert shown.count("The key is refused") == 1


def test_a_rolled_back_session_is_not_simply_tried_again(dashboard, account):
    agent = factories.agent("one", account=account, name="Ada")
    factories.ended(agent, "rolled_back", "tried to remove 7 of 10 tokens")
    db.session.commit()

    shown = attention(dashboard)

    assert "Trying again would likely end the same" in shown
    assert "Tried to remove 7 of 10 tokens" in shown
    assert "Refine" not in shown.partition("0 selected")[0].partition("Selected agents")[0]
    assert f"/access/new?agent={agent.id}" in dashboard.get("/").text


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
    assert "Cannot be refined now: the agent is not active." in shown
    assert "Cannot be refined now: the agent was erased." in shown


# -- put aside -------------------------------------------------------------------------------------


@pytest.fixture
def failed(account: Account) -> list[Agent]:
    agents = [factories.agent("one", account=account, name=name) for name in ("Ada", "Bo")]
    for agent in agents:
        factories.ended(agent, "failed")
    db.session.commit()
    return agents


@pytest.mark.parametrize(
    ("work", "until", "verb"),
    [
        ("acknowledge", lambda account, at: None, "acknowledged"),
        ("snooze_day", lambda account, at: at + timedelta(days=1), "snoozed"),
        ("snooze_week", lambda account, at: at + timedelta(days=7), "snoozed"),
        ("snooze_slot", lambda account, at: account.next_slot(at), "snoozed"),
    ],
)
def test_an_agent_is_put_aside_and_brought_back(
    dashboard, admin, account, failed, work, until, verb
):
    work, _, span = work.partition("_")
    form = {"agent": str(failed[0].id), "back": "/"}

    answer = dashboard.submit("/agents/many", {"work": work, "until": span, **form})

    assert answer.location == "/"
    assert "1 agent needs attention; 1 put aside ( show )" in attention(dashboard)
    assert "Ada" not in attention(dashboard)
    db.session.rollback()
    aside = db.session.get_one(PutAside, failed[0].id)
    assert aside.until == until(account, aside.at)
    then = f"{aside.until:%b %Y, %H:%M}" if aside.until else "it happens again"
    said_of_it = (
        f"Ada With a failed session {verb.capitalize()} by {admin.email}, .* until .*{then}"
    )
    assert re.search(said_of_it, attention(dashboard, "/?aside=1"))
    assert f"case {verb}" in said(dashboard, "/audit")

    dashboard.submit("/agents/many", {"work": "return", **form})

    assert "2 agents need attention." in attention(dashboard)


def test_a_session_page_acknowledges_and_says_by_whom(dashboard, admin, failed):
    page = f"/sessions/{failed[0].last_session_id}"
    assert "off the overview until something happens again" in said(dashboard, page)

    form = {"work": "acknowledge", "agent": str(failed[0].id), "back": page}
    answer = dashboard.submit("/agents/many", form)

    assert answer.location == page
    assert f"Acknowledged by {admin.email}" in said(dashboard, page)
    assert "Acknowledge takes" not in said(dashboard, page)
    assert "Ada" in said(dashboard, "/agents?state=failed")
    assert "Ada" not in said(dashboard, "/agents?cause=any")


def test_a_viewer_sees_the_cases_and_puts_none_aside(account, failed, signed_in):
    browser = signed_in(factories.user(account=account, role="viewer"))
    db.session.commit()

    assert "Acknowledge" not in attention(browser)
    form = {"work": "acknowledge", "agent": str(failed[0].id)}
    assert browser.submit("/agents/many", form).status_code == 403


# -- the installation ------------------------------------------------------------------------------


def test_a_missed_slot_needs_attention_unless_paused(dashboard, account):
    account.next_due_at = clock.now() - timedelta(minutes=61)
    db.session.commit()
    missed = attention(dashboard)
    account.paused = True
    db.session.commit()

    assert "Own account: a scheduled run was missed" in missed
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


def test_the_legend_keeps_its_order_whatever_happened_first(dashboard, quarter):
    legend = dashboard.get("/").text.partition('class="legend"')[2].partition("</ul>")[0]

    assert re.findall(r"o-(\w+)", legend) == ["completed", "declined", "failed"]


# -- whose -----------------------------------------------------------------------------------------


def test_a_site_admin_sees_all_accounts_or_one(account, quarter, site_admins):
    everything, one = said(site_admins, "/"), said(site_admins, "/?account=own")

    assert "2 agents in all accounts" in everything
    assert "Sessions 5" in everything
    assert "1 agent in Own account" in one
    assert "Sessions 4" in one
