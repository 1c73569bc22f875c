"""What holds on every page: quiet console, no sideways scrolling, accessible, light to load."""

import gzip
import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from flask import Flask
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, ViewportSize
from werkzeug.exceptions import HTTPException

from refine.extensions import db
from refine.models import User
from tests.browser.history import History, lived
from tests.browser.tour import paths, stops
from tests.browser.visiting import sign_in

Visits = Callable[..., Iterator[tuple[str, Page]]]

# No pages: probes and figures for machines, files, and the part of a page that htmx asks for.
NO_PAGES = {
    *("static", "status.healthz", "status.readyz", "metrics.metrics"),
    *("audit.export_csv", "audit.export_jsonl", "sessions.live", "access.live"),
}
PHONE: ViewportSize = {"width": 360, "height": 780}
# 1,280 points, zoomed: half as many, for letters twice as large.
HALF_A_SCREEN: ViewportSize = {"width": 640, "height": 450}
MOST_BYTES = 100_000
SERIOUS = ("serious", "critical")
# Of the rules, those whose answer a dark page can change.
_COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}

_WIDER_THAN_WINDOW = """() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return [];
  const wide = [...document.querySelectorAll("body *")].filter(
    (each) => each.getBoundingClientRect().right > room + 1 && !each.closest(".scroll"));
  const names = wide.map((each) => each.outerHTML.slice(0, 90));
  return [document.documentElement.scrollWidth - room, ...names];
}"""
_REPORT_VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"""


@pytest.fixture
def history(admin: User) -> History:
    return lived(admin)


@pytest.fixture
def visits(new_context: Callable[..., BrowserContext], history: History) -> Visits:
    """Visit every page in turn, in a context of these settings."""

    def visited(script: str | None = None, **settings: object) -> Iterator[tuple[str, Page]]:
        page = new_context(**settings).new_page()
        if script:
            page.add_init_script(script)
        sign_in(page, history.admin.email)
        for name, go in stops(history):
            go(page)
            page.wait_for_load_state()  # with its style
            db.session.rollback()  # PostgreSQL ends a transaction that idles for a minute
            yield name, page

    return visited


def test_every_page_of_the_dashboard_is_on_the_tour(app: Flask, history: History) -> None:
    addresses = app.url_map.bind("localhost")
    pages = {
        rule.endpoint
        for rule in app.url_map.iter_rules()
        if "GET" in (rule.methods or ()) and not rule.rule.startswith("/api/")
    }

    toured = {"signing_in.form", "audit.record"}
    for path in paths(history).values():
        try:
            toured.add(addresses.match(path.partition("?")[0])[0])
        except HTTPException:
            assert path == "/nowhere"

    assert toured == pages - NO_PAGES


def test_no_page_has_a_console_error_or_breaks_its_own_policy(visits: Visits) -> None:
    heard: list[str] = []

    for name, page in visits(_REPORT_VIOLATIONS):
        if name == "overview":
            page.on("pageerror", lambda error: heard.append(f"error: {error}"))
            page.on("console", lambda said: heard.extend(_complaint(said)))

    assert heard == []


def test_no_page_is_wider_than_a_phone_nor_with_text_twice_as_large(visits: Visits) -> None:
    wide = {}

    for name, page in visits(viewport=PHONE):
        if sticks_out := page.evaluate(_WIDER_THAN_WINDOW):
            wide[name, "phone"] = sticks_out
        page.set_viewport_size(HALF_A_SCREEN)
        page.evaluate("() => { document.documentElement.style.fontSize = '200%' }")
        if sticks_out := page.evaluate(_WIDER_THAN_WINDOW):
            wide[name, "zoomed"] = sticks_out
        page.set_viewport_size(PHONE)

    assert wide == {}


def test_no_page_has_a_serious_finding_of_axe_in_light_or_dark(visits: Visits) -> None:
    found = set()

    for name, page in visits(Axe().axe_script, bypass_csp=True, color_scheme="light"):
        found |= {(name, "light", *finding) for finding in _findings(page, {})}
        page.emulate_media(color_scheme="dark")
        found |= {(name, "dark", *finding) for finding in _findings(page, _COLOURS)}
        page.emulate_media(color_scheme="light")

    assert found == set()


def test_every_page_is_light_to_load(desk: Page, history: History) -> None:
    weights: dict[str, int] = {}
    files: dict[str, str] = {}

    for name, path in paths(history).items():
        html = desk.request.get(path).text()
        linked = sorted(set(re.findall(r'(?:href|src)="(/static/[^"]+\.(?:css|js))"', html)))
        for each in linked:
            files[each] = files.get(each) or desk.request.get(each).text()
        texts = [html, *(files[each] for each in linked)]
        weights[name] = sum(len(gzip.compress(text.encode())) for text in texts)

    assert {name: weight for name, weight in weights.items() if weight >= MOST_BYTES} == {}
    assert weights["session-live"] > weights["session-completed"] > 2_000


def _findings(page: Page, options: dict[str, object]) -> set[tuple[str, str]]:
    """The rule and the first place of each serious finding."""
    asked = {"resultTypes": ["violations"], **options}
    report = page.evaluate("(options) => axe.run(document, options)", asked)
    return {
        (finding["id"], finding["nodes"][0]["html"][:120])
        for finding in report["violations"]
        if finding["impact"] in SERIOUS
    }


def _complaint(said: ConsoleMessage) -> list[str]:
    """What the console was told, if it matters: that a page says 404 is as it should be."""
    url = urlsplit(said.location["url"]).path
    is_page = not url.startswith("/static/") and not url.endswith("/_live")
    is_status = said.text.startswith("Failed to load resource") and is_page
    return [] if said.type not in ("error", "warning") or is_status else [f"{url}: {said.text}"]
