"""The header: the first tab stop leads past its menu."""

import pytest
from playwright.sync_api import Page, expect


@pytest.mark.slow
def test_the_first_tab_stop_skips_the_menu(desk: Page) -> None:
    desk.goto("/users")
    desk.keyboard.press("Tab")
    expect(desk.get_by_role("link", name="Skip to main content")).to_be_focused()
    expect(desk.get_by_role("link", name="Skip to main content")).to_be_in_viewport()
    desk.keyboard.press("Enter")
    desk.keyboard.press("Tab")

    expect(desk.get_by_label("E-mail").first).to_be_focused()
