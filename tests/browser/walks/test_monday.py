"""Monday with sixty agents: cases worked through by key, ticks that stay, and without script."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from refine.extensions import db
from refine.models import Agent, User
from refine.models.attention import number_put_aside, number_waiting
from tests import factories
from tests.browser.monday import sixty_agents
from tests.browser.visiting import begin_signed_in, button


@pytest.fixture
def agents(admin: User) -> list[Agent]:
    return sixty_agents(admin.account)


ACTING = "ez"


class Keys:
    """A keyboard that counts; it waits for the page as somebody does who looks at it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.pressed = 0

    def press(self, *keys: str) -> None:
        for key in keys:
            self.pressed += 1
            if key not in ACTING:
                self.page.keyboard.press(key)
                continue
            with self.page.expect_response("**/agents/many"):
                self.page.keyboard.press(key)
            expect(self.page.locator("main[aria-busy]")).to_have_count(0)


def left() -> tuple[int, int]:
    db.session.rollback()
    return number_waiting(None), number_put_aside(None)


def test_twenty_cases_in_under_sixty_keys(desk: Page, agents: list[Agent]) -> None:
    keys = Keys(desk)

    desk.goto("/")
    expect(desk).to_have_title(re.compile(r"^\(33\) "))
    keys.press("?")
    expect(desk.get_by_role("dialog")).to_contain_text("acknowledge the selected agents")
    keys.press("Escape")
    keys.press("j", "x", *["j", "x"] * 9)
    expect(desk.get_by_text("10 selected")).to_be_visible()
    keys.press("e")
    expect(desk.get_by_role("status")).to_contain_text("10 agents acknowledged.")
    keys.press(*["e"] * 5)  # the two others of the outage, and the three lost workers
    keys.press("j", "k", *["z"] * 5)

    expect(desk.get_by_text("13 agents need attention; 20 put aside")).to_be_visible()
    expect(desk).to_have_title(re.compile(r"^\(13\) "))
    assert left() == (13, 20)
    assert keys.pressed < 60


def test_keys_do_nothing_in_a_field_or_behind_the_help(desk: Page, wren: Agent) -> None:
    factories.ended(wren, "failed")
    db.session.commit()

    desk.goto("/agents")
    desk.keyboard.press("j")
    expect(desk.get_by_label("Select Wren")).to_be_focused()
    desk.keyboard.press("?")
    desk.keyboard.press("x")
    desk.keyboard.press("e")
    desk.keyboard.press("Escape")
    expect(desk.get_by_role("checkbox", checked=True)).to_have_count(0)
    desk.get_by_label("Name or model").fill("")

    desk.get_by_label("Name or model").press_sequentially("jexz")

    expect(desk.get_by_label("Name or model")).to_have_value("jexz")
    assert left() == (1, 0)


@pytest.mark.slow
def test_ticks_survive_paging_and_refreshes_until_they_are_acted_upon(
    desk: Page, agents: list[Agent]
) -> None:
    desk.goto("/agents?sort=name")
    desk.get_by_label("Select Agent 02").check()
    desk.get_by_role("link", name="Next").click()
    desk.get_by_label("Select Agent 55").check()
    expect(desk.get_by_text("2 selected, 1 of them on other pages")).to_be_visible()

    desk.get_by_role("link", name="Refresh").click()
    desk.reload()
    expect(desk.get_by_label("Select Agent 55")).to_be_checked()
    button(desk, "Pause…").click()
    button(desk, "Pause 2 agents").click()

    expect(desk.get_by_role("status")).to_contain_text("2 agents paused.")
    expect(desk.get_by_text("0 selected")).to_be_visible()
    db.session.rollback()
    assert [agent.name for agent in agents if agent.paused] == ["Agent 02", "Agent 55"]


@pytest.mark.slow
def test_without_script_the_same_is_done_with_the_bar(
    browser: Browser, admin: User, agents: list[Agent], site: str
) -> None:
    of_one_account = factories.user(account=admin.account)
    with browser.new_context(base_url=site, java_script_enabled=False) as context:
        page = context.new_page()
        begin_signed_in(page, of_one_account, site)
        page.get_by_label("Select Agent 01").check()
        page.get_by_label("Select Agent 16").check()
        page.get_by_label("Snooze").select_option(label="for a week")
        button(page, "Snooze").click()
        expect(page.get_by_role("status")).to_contain_text("2 agents snoozed for a week.")
        button(page, "Acknowledge all 11 agents with a failed session: connection…").click()
        button(page, "Acknowledge 11 agents").click()

        page.get_by_role("link", name="show").click()
        button(page, "Bring Agent 16 back").click()

        expect(page.get_by_text("21 agents need attention; 12 put aside")).to_be_visible()
        assert left() == (21, 12)


@pytest.mark.slow
def test_of_two_accounts_the_names_show_and_nothing_is_done_for_all(
    desk: Page, agents: list[Agent]
) -> None:
    elsewhere = factories.account(name="Harbour Lights")
    factories.ended(factories.agent("one", account=elsewhere, name="Skua"), "declined")
    db.session.commit()

    desk.goto("/")

    expect(desk.locator("li", has_text="Skua")).to_contain_text("Harbour Lights")
    expect(desk.get_by_role("button", name="Acknowledge all")).to_have_count(0)
    desk.get_by_label("Select Skua").check()
    button(desk, "Acknowledge").last.click()
    expect(desk.get_by_role("status")).to_contain_text("1 agent acknowledged.")
