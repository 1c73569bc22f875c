"""What holds on every page: quiet console, no sideways scrolling, accessible, light to load.

One walk looks at them all, and what it found is what each test looks at; nightly. In the gate, one
test looks at the pages that have most on them.
"""

import pytest
from flask import Flask
from playwright.sync_api import Browser, Page
from werkzeug.exceptions import HTTPException

from tests.browser.history import lived, platform_admin
from tests.browser.walking import Walk, walked
from tests.conftest import emptied

# No pages: probes and figures for machines, files, and the part of a page that htmx asks for.
NO_PAGES = {
    *("static", "status.healthz", "status.readyz", "status.metrics"),
    "audit.export",
    # without mail there is none
    "signing_in.forgotten",
}
IN_THE_GATE = (
    *("overview", "agents", "settings", "session-completed", "undo", "audit-filtered"),
    *("operations", "profile"),
)
MOST_BYTES = 100_000


@pytest.fixture(scope="module")
def walk(browser: Browser, site: str, migrated_app: Flask) -> Walk:
    """What was found on every page; the history that they showed is gone when the tests look."""
    with emptied(migrated_app):
        history = lived(platform_admin())
        with browser.new_context(base_url=site) as context:
            return walked(context.new_page(), history)


@pytest.mark.slow
def test_full_pages_are_quiet_accessible_and_in_order(page: Page, app: Flask) -> None:
    walk = walked(page, lived(platform_admin()), only=IN_THE_GATE)

    assert walk.heard == []
    assert (walk.malformed, walk.sticks_out, walk.out_of_order) == ({}, {}, {})
    assert walk.findings == set()


def test_every_page_of_the_dashboard_is_on_the_tour(migrated_app: Flask, walk: Walk) -> None:
    addresses = migrated_app.url_map.bind("localhost")
    pages = {
        rule.endpoint
        for rule in migrated_app.url_map.iter_rules()
        if "GET" in (rule.methods or ()) and not rule.rule.startswith("/api/")
    }

    toured = {"signing_in.form", "second_factor.form", "audit.record"}
    for path in walk.paths.values():
        try:
            toured.add(addresses.match(path.partition("?")[0])[0])
        except HTTPException:
            assert path == "/nowhere"

    assert toured == pages - NO_PAGES


def test_no_page_logs_a_console_error_or_violates_its_policy(walk: Walk) -> None:
    assert walk.heard == []


def test_no_attribute_contains_markup(walk: Walk) -> None:
    assert walk.malformed == {}


def test_no_page_scrolls_sideways_on_a_phone_or_zoomed(walk: Walk) -> None:
    assert walk.sticks_out == {}


def test_axe_finds_nothing_in_light_or_dark(walk: Walk) -> None:
    assert walk.findings == set()


def test_the_tab_key_reaches_every_control_in_page_order(walk: Walk) -> None:
    assert walk.out_of_order == {}


def test_every_page_is_light_to_load(walk: Walk) -> None:
    heavy = {name: weight for name, weight in walk.weights.items() if weight >= MOST_BYTES}

    assert heavy == {}
    assert walk.weights["session-completed"] > 15_000  # with its style and scripts
