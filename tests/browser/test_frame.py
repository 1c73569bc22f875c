"""The header: a palette by keyboard, a menu that folds on a phone, tables as cards there."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

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


@pytest.mark.slow
def test_the_palette_finds_an_agent_by_keyboard(agents: Page) -> None:
    agents.keyboard.press("Control+k")
    agents.keyboard.type("kingf")
    palette = agents.get_by_role("dialog")

    expect(palette.get_by_role("link", name="Kingfisher")).to_be_visible()
    expect(palette.get_by_role("status")).to_have_text("1 found")
    agents.keyboard.press("ArrowDown")
    expect(palette.get_by_role("link", name="Kingfisher")).to_be_focused()
    agents.keyboard.press("Enter")

    expect(heading(agents, "Kingfisher")).to_be_visible()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda route: route.abort(), "no connection"),
        (lambda route: route.fulfill(status=502, body="a proxy"), "HTTP 502"),
        (lambda route: route.fulfill(body="a proxy"), "the answer did not come from Refine"),
        (
            lambda route: route.fulfill(status=400, body="", headers={"Refine-Page": "1"}),
            "HTTP 400",
        ),
    ],
    ids=["no connection", "a failure", "of somebody else", "a refusal"],
)
def test_the_palette_itself_says_that_it_could_not_search(
    agents: Page, answer: Callable[[Route], None], why: str
) -> None:
    palette = agents.get_by_role("dialog")
    agents.keyboard.press("Control+k")
    agents.keyboard.type("kingf")
    expect(palette.get_by_role("link", name="Kingfisher")).to_be_visible()

    agents.route("**/find*", answer)
    agents.keyboard.type("i")

    expect(palette.get_by_role("alert")).to_have_text(
        f"Could not search ({why}). Keep typing to try again."
    )
    expect(palette.get_by_role("link", name="Kingfisher")).to_have_count(0)
    expect(agents.locator("#alert")).to_be_hidden()
    agents.unroute("**/find*")
    agents.keyboard.type("s")
    expect(palette.get_by_role("link", name="Kingfisher")).to_be_visible()
    expect(palette.get_by_role("alert")).to_be_hidden()


def test_escape_closes_the_palette_and_returns_the_focus(agents: Page) -> None:
    field = agents.get_by_label("Name or model")
    field.focus()

    agents.keyboard.press("Control+k")
    expect(agents.get_by_role("dialog").get_by_role("searchbox")).to_be_focused()
    agents.keyboard.press("ArrowUp")
    expect(agents.get_by_role("dialog").get_by_role("link").last).to_be_focused()
    agents.keyboard.press("Escape")

    expect(agents.get_by_role("dialog")).to_be_hidden()
    expect(field).to_be_focused()


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
