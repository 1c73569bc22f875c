"""Static files: kept by browsers for as long as their URL names what they hold."""

import re

import pytest

from tests.web.conftest import Browser


@pytest.fixture
def style(dashboard: Browser) -> str:
    """The URL of the style sheet, as pages name it."""
    found = re.search(r'href="(/static/refine\.css[^"]*)"', dashboard.get("/").text)
    assert found is not None
    return found[1]


def test_a_file_is_kept_under_the_url_that_pages_name(dashboard: Browser, style: str) -> None:
    assert "max-age=31536000" in dashboard.get(style).headers["Cache-Control"]


@pytest.mark.parametrize("ending", ["", "?v=0123456789ab"])
def test_a_file_is_not_kept_under_another_url(dashboard: Browser, style: str, ending: str) -> None:
    other = style.partition("?")[0] + ending

    assert dashboard.get(other).headers["Cache-Control"] == "no-cache"


def test_a_missing_file_is_not_found(dashboard: Browser) -> None:
    assert dashboard.get("/static/none.css?v=1").status_code == 404
