"""Somebody's first minutes: signing in, looking around, a first session to its end."""

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask
from playwright.sync_api import Browser, BrowserContext, Page, expect

from refine import demo
from refine.extensions import db
from refine.models import User
from tests import factories
from tests.browser.visiting import button, heading, rows, sign_in, state
from tests.cli.test_up import Up
from tests.commands import eventually

OUTCOME = re.compile(r"Refinement session: \d+ → \d+ memories, \d+ tokens saved \(.+\)\.")


@pytest.fixture(scope="module")
def up(browser: Browser) -> Iterator[Up]:
    """`refine up` in an empty folder."""
    # a short path: PostgreSQL's socket has little room for it
    with tempfile.TemporaryDirectory(prefix="refine-up-") as folder:
        running = Up(Path(folder))
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.end()
            for stream in (running.process.stdout, running.process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture
def demo_admin(app: Flask) -> User:
    """An admin of an installation with the demo account, whose agents the rehearsal model plays."""
    account = demo.load_into_empty_database()
    made = factories.user(account=account, email="admin@localhost", site_admin=True)
    db.session.commit()
    return made


def refreshed(page: Page) -> bool:
    """Follow the link that refreshes the page, if there is one; tell whether there was none."""
    if not page.get_by_role("link", name="Refresh").count():
        return True
    page.get_by_role("link", name="Refresh").click()
    return False


def test_the_output_of_refine_up_leads_to_a_finished_session(up: Up, browser: Browser) -> None:
    said = re.search(r"(http://\S+) \(sign in as (\S+) with the password (\S+)\)", up.ready())
    assert said is not None
    url, email, password = said.groups()
    with browser.new_context(base_url=url) as context:
        page = context.new_page()

        sign_in(page, email, password)
        expect(page.get_by_text("8 agents in all accounts")).to_be_visible()
        expect(page.get_by_text("answered by the rehearsal model")).to_be_visible()
        expect(page.get_by_role("heading", name="First steps")).to_be_visible()
        page.get_by_role("link", name="Agents", exact=True).click()
        page.get_by_role("link", name="Halyard").click()
        button(page, "Refine now").click()
        expect(heading(page, "Session of Halyard")).to_be_visible()
        page.evaluate("window.isTheSamePage = true")

        expect(state(page, "completed")).to_be_visible()
        expect(page.locator(".outcome")).to_contain_text(OUTCOME)
        expect(rows(page, "Steps").last).to_contain_text("session completed")
        assert page.evaluate("window.isTheSamePage")
        page.get_by_role("link", name="Overview").click()
        expect(page.get_by_role("link", name="completed")).to_be_visible()


@pytest.mark.usefixtures("worker")
def test_everything_works_without_javascript(
    new_context: Callable[..., BrowserContext], demo_admin: User
) -> None:
    page: Page = new_context(java_script_enabled=False).new_page()

    sign_in(page, demo_admin.email)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Agents").click()
    page.get_by_role("link", name="Halyard").click()
    button(page, "Refine now").click()
    expect(heading(page, "Session of Halyard")).to_be_visible()
    eventually(lambda: refreshed(page), seconds=60)

    expect(state(page, "completed")).to_be_visible()
    expect(page.locator(".outcome")).to_contain_text(OUTCOME)
    expect(button(page, "Pause updates")).to_have_count(0)
