"""Finding things: from what needs attention to its cause, by filters, links and pages of lists."""

import re

import pytest
from playwright.sync_api import Page, expect

from refine.extensions import db
from refine.models import User
from tests import factories
from tests.browser.visiting import button, rows


@pytest.fixture
def sixty(admin: User) -> list[str]:
    """The names of sixty agents, of which every tenth is paused."""
    names = [f"Dunlin {number:02}" for number in range(60)]
    for number, name in enumerate(names):
        factories.agent(account=admin.account, name=name, paused=number % 10 == 0)
    db.session.commit()
    return names


def names_on(page: Page) -> list[str]:
    return rows(page, "Agents").get_by_role("rowheader").all_inner_texts()


@pytest.mark.slow
def test_filters_are_in_the_url_and_follow_the_back_button(desk: Page, sixty: list[str]) -> None:
    desk.goto("/agents")
    desk.get_by_label("Name or model").fill("dunlin 1")
    desk.get_by_label("State").select_option("paused")
    button(desk, "Apply").click()

    expect(rows(desk, "Agents")).to_have_count(1)
    assert names_on(desk) == ["Dunlin 10"]
    expect(desk).to_have_url(re.compile(r"q=dunlin\+1&state=paused"))

    desk.go_back()

    expect(rows(desk, "Agents")).to_have_count(50)
    expect(desk.get_by_label("State")).to_have_value("")

    desk.go_forward()

    expect(rows(desk, "Agents")).to_have_count(1)
    expect(desk.get_by_label("Name or model")).to_have_value("dunlin 1")
    expect(desk.get_by_label("State")).to_have_value("paused")

    desk.get_by_role("link", name="Clear all").click()

    expect(rows(desk, "Agents")).to_have_count(50)
