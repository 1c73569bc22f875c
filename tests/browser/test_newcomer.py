"""Somebody's first five minutes: Wren is refined and watched, asked, read, and all is undone."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.visiting import button, heading, rows, sign_in, state
from tests.commands import Up, running_up

STEPS = "Steps of this session, oldest first"


@pytest.fixture(scope="module")
def up(browser: Browser) -> Iterator[Up]:
    """`refine up` in an empty folder."""
    with running_up() as running:
        yield running


def done(page: Page) -> list[str]:
    """The first steps that are done."""
    page.get_by_role("link", name="Overview").click()
    expect(heading(page, "Overview")).to_be_visible()
    return page.locator(".steps li:has(.ok) .calm").all_inner_texts()


@pytest.mark.slow
def test_the_output_of_refine_up_leads_through_the_first_five_minutes(
    up: Up, browser: Browser
) -> None:
    said = re.search(r"(http://\S+) - sign in as (\S+) with the password (\S+)", up.ready())
    assert said is not None
    url, email, password = said.groups()
    with browser.new_context(base_url=url) as context:
        page = context.new_page()

        sign_in(page, email, password)
        expect(page.get_by_text("8 agents in all accounts")).to_be_visible()
        expect(page.get_by_text("you are rehearsing")).to_be_visible()
        refine_and_watch(page)
        assert done(page) == ["Refine Wren"]
        ask_and_read(page)
        undo(page)

        steps = ["Ask Wren whether you may read", "Read what changed", "Undo the session"]
        assert done(page) == ["Refine Wren", *steps]
        button(page, "Dismiss the first steps").click()
        expect(page.get_by_role("heading", name="First steps")).to_have_count(0)


def refine_and_watch(page: Page) -> None:
    button(page, "Begin with Wren").click()
    expect(heading(page, "Session of Wren")).to_be_visible()
    page.evaluate("window.isTheSamePage = true")
    steps_seen = set()
    while not state(page, "completed").is_visible():
        steps_seen.add(rows(page, STEPS).count())
        page.wait_for_timeout(200)

    # at a pace that can be followed: most merges were seen alone
    assert len(steps_seen & set(range(7, 13))) >= 4
    expect(page.get_by_role("heading", name="233 tokens fewer in every prompt")).to_be_visible()
    expect(rows(page, STEPS).last).to_contain_text("session completed")
    assert page.evaluate("window.isTheSamePage")
    replay = button(page, "Replay")
    replay.click(trial=True)  # nothing lies over it


def ask_and_read(page: Page) -> None:
    page.get_by_role("link", name="Ask Wren…").click()
    page.get_by_label("Reason").select_option(label="the agent asked for it")
    page.get_by_label("Purpose").fill("To see what the first session changed")
    page.get_by_label("Duration").select_option(label="15 minutes")
    button(page, "Ask Wren").click()
    expect(state(page, "granted")).to_be_visible()
    page.locator(".next").get_by_role("link", name="Read the changes").click()
    changed = page.get_by_role("region", name="What changed")
    expect(changed.get_by_text("MR. HALLORAN was a lighthouse tender").first).to_be_visible()


def undo(page: Page) -> None:
    page.locator(".next").get_by_role("link", name="Undo…").click()
    expect(page.get_by_text("1,273 → 1,506 tokens")).to_be_visible()
    button(page, "Undo this session").click()
    expect(page.get_by_text("Undone: 18 brought back")).to_be_visible()
    page.locator(".crumbs").get_by_role("link", name="Wren").click()
    expect(page.get_by_text("1,506 of 1,300")).to_be_visible()
