"""Sixty agents of two accounts, by hand: filtered, saved as a view, found again."""

import pytest
from playwright.sync_api import Page, expect

from refine.extensions import db
from refine.models import User
from tests import factories
from tests.browser.visiting import button, heading, rows

LONGER_THAN_A_GLANCE_MS = 600
WIDE = {"width": 2200, "height": 900}


@pytest.fixture(autouse=True)
def sixty_agents(admin: User) -> None:
    accounts = [admin.account, factories.account(name="Harbour Lights")]
    for number in range(60):
        agent = factories.agent("one two", account=accounts[number % 2], name=f"Tern {number:02}")
        agent.core_token_budget = 5_000 if number % 20 else 1
        factories.ended(agent, "failed" if number == 59 else "completed")
    db.session.commit()


def test_a_filter_is_saved_as_a_view_and_deleted(desk: Page) -> None:
    desk.goto("/agents")
    expect(rows(desk, "Agents").first).to_contain_text("Tern 59")

    desk.get_by_label("State").select_option(label="over budget")
    expect(desk.get_by_text("3 of 60 agents")).to_be_visible()
    expect(desk).to_have_title("(4) Agents · over budget · Refine")
    desk.get_by_text("Save this view…").click()
    desk.get_by_label("Name", exact=True).fill("Too large")
    desk.wait_for_timeout(LONGER_THAN_A_GLANCE_MS)
    button(desk, "Save").click()

    view = desk.get_by_role("link", name="Too large")
    expect(view).to_have_attribute("aria-current", "page")
    desk.goto("/agents")
    view.click()
    expect(rows(desk, "Agents")).to_have_count(3)
    desk.wait_for_timeout(LONGER_THAN_A_GLANCE_MS)
    button(desk, "Delete this view").click()
    expect(view).to_have_count(0)
    expect(rows(desk, "Agents")).to_have_count(3)


def test_the_next_page_keeps_filter_and_order(desk: Page) -> None:
    desk.goto("/agents?q=tern&sort=name")

    desk.get_by_role("link", name="Next →").click()

    expect(rows(desk, "Agents")).to_have_count(10)
    expect(rows(desk, "Agents").last).to_contain_text("Tern 59")
    expect(desk.get_by_label("Name or model")).to_have_value("tern")


def test_a_wide_screen_shows_more_columns(desk: Page) -> None:
    desk.goto("/agents")
    memories = desk.get_by_role("columnheader", name="Memories")
    expect(memories).to_be_hidden()

    desk.set_viewport_size(WIDE)

    expect(memories).to_be_visible()
    table = desk.get_by_role("table").bounding_box()
    assert table is not None
    assert table["width"] > 0.85 * WIDE["width"]


def test_what_the_field_finds_is_opened(desk: Page) -> None:
    field = desk.get_by_label("Find an agent, session, memory or record")

    field.fill("tern 07")
    field.press("Enter")
    expect(heading(desk, "Tern 07")).to_be_visible()

    field.fill("tern")
    field.press("Enter")
    expect(desk.get_by_role("link", name="Agent Tern 00")).to_be_visible()
