"""The wall on a screen: opened by a link that leaves no trace, and true by itself."""

import pytest
from playwright.sync_api import Page, expect
from pytest_playwright.pytest_playwright import CreateContextCallback

from refine import clock
from refine.extensions import db
from refine.models import Account, Agent, ApiToken, PeriodicWork
from tests import factories


@pytest.fixture
def agent(app) -> Agent:
    made = factories.agent("one", account=factories.account(name="Saltmarsh"))
    for event in ("tick", "worker"):
        PeriodicWork.note(event, clock.now())
    db.session.commit()
    return made


def test_a_link_opens_the_wall_and_leaves_its_token_in_no_address(page: Page, agent, site):
    _, secret = ApiToken.mint(account=None, kind="wall")
    db.session.commit()
    asked: list[str] = []
    page.on("request", lambda each: asked.append(f"{each.url.partition('#')[0]} {each.headers}"))

    page.goto(f"/wall/open#{secret}")

    expect(page.get_by_role("heading", name="Saltmarsh")).to_be_visible()
    assert page.url == f"{site}/wall"
    assert len(asked) > 3
    assert [each for each in asked if secret in each] == []
    assert secret not in page.evaluate("document.cookie + document.documentElement.outerHTML")
    page.go_back()
    assert secret not in page.url


def test_the_wall_tells_by_itself_what_went_wrong(page: Page, agent: Agent):
    account: Account = agent.account
    _, secret = ApiToken.mint(account=account, kind="wall")
    db.session.commit()
    page.goto(f"/wall/open#{secret}")
    expect(page.get_by_text("all well")).to_be_visible()

    factories.ended(agent, "failed", "it failed", error_kind="timeout")
    db.session.commit()
    page.evaluate("htmx.trigger('#main', 'again')")

    expect(page.get_by_text("1 agent with a failed session: timeout")).to_be_visible()
    expect(page.get_by_text("As of")).to_be_visible()


def test_without_script_the_token_is_typed(new_context: CreateContextCallback, agent: Agent):
    page = new_context(java_script_enabled=False).new_page()
    _, secret = ApiToken.mint(account=agent.account, kind="wall")
    db.session.commit()

    page.goto("/wall/open")
    page.get_by_label("Wall token").fill(secret)
    page.get_by_role("button", name="Open").click()

    expect(page.get_by_role("heading", name="Saltmarsh")).to_be_visible()
