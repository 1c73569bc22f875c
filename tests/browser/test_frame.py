"""The header: a menu that folds on a phone; and tables, which are cards there."""

import pytest
from playwright.sync_api import Page, expect

from refine.extensions import db
from refine.models import User
from tests import factories
from tests.browser.visiting import heading, rows
from tests.browser.walking import PHONE


@pytest.fixture
def agents(desk: Page, admin: User) -> Page:
    for name in ("Kingfisher", "Wren"):
        factories.agent("one", account=admin.account, name=name)
    db.session.commit()
    desk.goto("/agents")
    return desk


def test_the_menu_folds_on_a_phone_and_names_the_area(agents: Page) -> None:
    menu = agents.get_by_role("navigation", name="Main")
    expect(menu).to_be_visible()

    agents.set_viewport_size(PHONE)
    expect(menu).to_be_hidden()
    agents.get_by_text("Menu: Agents").click()

    menu.get_by_role("link", name="Sessions").click()
    expect(heading(agents, "Sessions")).to_be_visible()
    expect(menu).to_be_hidden()


def test_a_row_is_a_card_on_a_phone_and_still_a_row(agents: Page) -> None:
    row = rows(agents, "Agents").first
    cells = row.get_by_role("cell")
    assert len({box["y"] for cell in cells.all() if (box := cell.bounding_box())}) == 1

    agents.set_viewport_size(PHONE)

    tops = [box["y"] for cell in cells.all() if (box := cell.bounding_box())]
    assert len(tops) > 3
    assert tops == sorted(set(tops))
    expect(agents.get_by_role("columnheader", name="Model")).to_be_attached()
    label = cells.nth(2).evaluate("each => getComputedStyle(each, '::before').content")
    assert label == '"Model"'


@pytest.mark.slow
def test_the_first_tab_stop_skips_the_menu(desk: Page) -> None:
    desk.goto("/users")
    desk.keyboard.press("Tab")
    expect(desk.get_by_role("link", name="Skip to main content")).to_be_focused()
    expect(desk.get_by_role("link", name="Skip to main content")).to_be_in_viewport()
    desk.keyboard.press("Enter")
    desk.keyboard.press("Tab")

    expect(desk.get_by_label("E-mail").first).to_be_focused()
