"""Pages that change in place: where the reader is stays, and only our own pages come in."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from refine.extensions import db
from refine.models import Agent, User
from tests import factories
from tests.browser.visiting import button, rows

KEPT = "window.isTheSamePage"


@pytest.fixture
def agent(admin: User) -> Agent:
    made = factories.agent(*(factories.text_of(25) for _ in range(40)), account=admin.account)
    db.session.commit()
    return made


@pytest.fixture
def ledger(desk: Page, agent: Agent) -> Page:
    desk.goto(f"/agents/{agent.id}/ledger")
    desk.evaluate(f"{KEPT} = true")
    return desk


def answered(page: Page, pattern: str, **answer: Any) -> None:
    """Have what is asked for under a URL answered by something that is not Refine."""
    page.route(re.compile(pattern), lambda route: fulfil(route, answer))


def fulfil(route: Route, answer: dict[str, Any]) -> None:
    is_in_place = "hx-request" in route.request.headers
    route.fulfill(**answer) if is_in_place else route.continue_()


@pytest.mark.slow
def test_a_toggle_far_down_keeps_place_and_focus(ledger: Page) -> None:
    flag = ledger.get_by_role("button", name="Make memory").last
    (memory,) = re.findall(r"memory #\d+", flag.get_attribute("aria-label") or "")
    flag.scroll_into_view_if_needed()
    flag.focus()
    before = ledger.evaluate("scrollY")

    flag.press("Enter")

    expect(button(ledger, f"Remove the constitutional flag of {memory}")).to_be_focused()
    expect(ledger.get_by_role("status")).to_contain_text("is now constitutional")
    assert before > 0
    assert abs(ledger.evaluate("scrollY") - before) < 100
    assert ledger.evaluate(KEPT)


def test_a_filter_applies_by_itself_and_back_returns(ledger: Page) -> None:
    ledger.get_by_label("Show").select_option("discarded")

    expect(ledger.get_by_text("No discarded memories.")).to_be_visible()
    assert "kind=discarded" in ledger.url
    assert "tag=" not in ledger.url
    assert ledger.evaluate(KEPT)

    ledger.go_back()

    expect(rows(ledger, "Core memories")).to_have_count(40)


@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_of_somebody_else_never_takes_the_pages_place(ledger: Page, status: int) -> None:
    answered(ledger, "/ledger", status=status, content_type="text/html", body="<main id=main>Pay")

    ledger.get_by_label("Show").select_option("discarded")

    expect(ledger.get_by_role("alert")).to_contain_text("reload the page")
    expect(rows(ledger, "Core memories")).to_have_count(40)
