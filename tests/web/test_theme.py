"""Light or dark, as somebody chose it in this browser."""

import pytest

from tests.web.conftest import Browser


def theme_of(browser: Browser) -> str:
    return browser.get("/").text.partition('<html lang="en"')[2].partition(">")[0].strip()


def test_pages_are_as_the_system_is_at_first(dashboard: Browser) -> None:
    assert theme_of(dashboard) == ""


@pytest.mark.parametrize("wanted", ["light", "dark"])
def test_a_chosen_theme_is_kept(dashboard: Browser, wanted: str) -> None:
    dashboard.submit("/profile/theme", {"theme": wanted})

    assert theme_of(dashboard) == f'data-theme="{wanted}"'


def test_an_unknown_theme_is_none(dashboard: Browser) -> None:
    dashboard.set_cookie("theme", '"><script>')
    dashboard.submit("/profile/theme", {"theme": "pink"})

    assert theme_of(dashboard) == ""
