"""With the keyboard alone: to the end of a session, past the menu, each stop to be seen."""

import pytest
from playwright.sync_api import Page, expect

from refine.extensions import db
from refine.models import Agent, User
from tests import factories
from tests.browser.visiting import heading, state

MOST_TABS = 120

_FOCUSED = """() => {
  const each = document.activeElement, style = getComputedStyle(each);
  return {
    name: each.getAttribute("aria-label") || each.labels?.[0]?.innerText || each.innerText,
    isSeen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2
      && each.getBoundingClientRect().width > 0,
  };
}"""


@pytest.fixture
def agent(admin: User) -> Agent:
    """An agent whom the rehearsal model plays."""
    admin.account.slug = "demo"
    made: Agent = factories.agent(
        *("I like the rain.", "I like the rain!", "The harbour freezes in January."),
        account=admin.account,
        name="Wren",
        model_id="rehearsal/wren",
    )
    db.session.commit()
    return made


def tab_to(page: Page, name: str) -> None:
    """Press Tab until that has the focus; whatever has it on the way can be seen to."""
    page.wait_for_load_state()  # the focus has its outline once the style sheet has come
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        assert focused["isSeen"], focused["name"]
        if focused["name"].strip() == name:
            return
    raise AssertionError(f"{name} is out of reach")


@pytest.mark.usefixtures("worker")
def test_the_keyboard_alone_leads_from_sign_in_to_a_finished_session(
    page: Page, admin: User, agent: Agent
) -> None:
    page.goto("/sign-in")
    expect(page.get_by_label("E-mail")).to_be_focused()
    page.keyboard.type(admin.email)
    page.keyboard.press("Tab")
    page.keyboard.type(factories.PASSWORD)
    page.keyboard.press("Enter")
    expect(heading(page, "Overview")).to_be_visible()

    tab_to(page, "Agents")
    page.keyboard.press("Enter")
    expect(heading(page, "Agents")).to_be_visible()
    tab_to(page, "Wren")
    page.keyboard.press("Enter")
    expect(heading(page, "Wren")).to_be_visible()
    tab_to(page, "Refine now")
    page.keyboard.press("Enter")

    expect(heading(page, "Session of Wren")).to_be_visible()
    expect(state(page, "completed")).to_be_visible()
    tab_to(page, "Undo…")


def test_the_first_tab_stop_skips_the_menu(desk: Page, agent: Agent) -> None:
    desk.goto("/agents")
    desk.keyboard.press("Tab")
    expect(desk.get_by_role("link", name="Skip to main content")).to_be_focused()
    expect(desk.get_by_role("link", name="Skip to main content")).to_be_in_viewport()
    desk.keyboard.press("Enter")
    desk.keyboard.press("Tab")

    expect(desk.get_by_label("Name or model")).to_be_focused()
