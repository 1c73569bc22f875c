"""Somebody's first minutes: signing in, looking around, a first session to its end."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.visiting import button, heading, rows, sign_in, state
from tests.commands import Up, running_up


@pytest.fixture(scope="module")
def up(browser: Browser) -> Iterator[Up]:
    """`refine up` in an empty folder."""
    with running_up() as running:
        yield running


@pytest.mark.slow
def test_the_output_of_refine_up_leads_to_a_finished_session(up: Up, browser: Browser) -> None:
    said = re.search(r"(http://\S+) - sign in as (\S+) with the password (\S+)", up.ready())
    assert said is not None
    url, email, password = said.groups()
    with browser.new_context(base_url=url) as context:
        page = context.new_page()

        sign_in(page, email, password)
        expect(page.get_by_text("8 agents in all accounts")).to_be_visible()
        expect(page.get_by_text("you are rehearsing")).to_be_visible()
        expect(page.get_by_role("heading", name="First steps")).to_be_visible()
        page.get_by_role("link", name="Agents", exact=True).click()
        page.get_by_role("link", name="Halyard").click()
        button(page, "Refine now").click()
        expect(heading(page, "Session of Halyard")).to_be_visible()
        page.evaluate("window.isTheSamePage = true")

        expect(state(page, "completed")).to_be_visible()
        expect(page.get_by_role("heading", name="71 tokens fewer in every prompt")).to_be_visible()
        expect(rows(page, "Steps").last).to_contain_text("session completed")
        assert page.evaluate("window.isTheSamePage")
        page.get_by_role("link", name="Overview").click()
        expect(page.get_by_role("link", name="completed")).to_be_visible()
