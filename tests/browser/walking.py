"""One walk through every page, and what it found on each, for several tests to look at."""

import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, Response, ViewportSize

from refine.extensions import db
from tests.browser.history import History
from tests.browser.tour import paths, stops
from tests.browser.visiting import sign_in

# One of each kind, for the keyboard.
KINDS_OF_PAGES = (
    *("overview", "agents", "agent-long-story", "memories-journal", "settings", "sessions"),
    *("session-live", "session-completed", "undo", "undo-conflict", "audit-filtered", "schedule"),
    *("operations", "users", "tokens", "accounts", "profile"),
)
# A date has one for the day, one for the month …
MOST_STOPS_OF_ONE = 4
PHONE: ViewportSize = {"width": 360, "height": 780}
SCREEN: ViewportSize = {"width": 1280, "height": 720}
# 1,280 points, zoomed: half as many, for letters twice as large.
HALF_A_SCREEN: ViewportSize = {"width": 640, "height": 450}

Scheme = Literal["light", "dark"]
# The rules of axe for each scheme: all, and those whose answer a dark page can change.
_SCHEMES: dict[Scheme, dict[str, list[str]]] = {
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
    "light": {},
}
# All that axe finds, and all that it cannot decide, but for the contrast of signs that stand beside
# words and that nobody has to read, of labels over the lines of a plot, and of changed words that
# go on in the next line.
_FINDINGS = """async (rules) => {
  const kinds = ["violations", "incomplete"];
  const isSign = (node) => node.any.some((check) => check.data?.messageKey === "nonBmp")
    && node.html.includes('aria-hidden="true"');
  const isOverOthers = ({ id }, { html }) =>
    id === "color-contrast" && /^<(text|ins|del)\\b/.test(html);
  const report = await axe.run(document, {resultTypes: kinds, selectors: false, ...rules});
  return kinds.flatMap((kind) => report[kind]).flatMap((finding) => finding.nodes
    .filter((node) => !isSign(node) && !isOverOthers(finding, node))
    .map((node) => [finding.id, node.html.slice(0, 120)]));
}"""
# One number for each control, in the order of the page; what is hidden or disabled is none, and of
# radio buttons the chosen one stands for all.
_NUMBER_CONTROLS = """() => {
  const all = "a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']";
  const isSkipped = (each) => each.matches(":disabled, [type=radio]:not(:checked)");
  const controls = [...document.querySelectorAll(all)].filter((each) =>
    !isSkipped(each) && each.checkVisibility({visibilityProperty: true}));
  document.body.tabIndex = -1;
  document.body.focus();
  window.reached = [];
  document.addEventListener("focusin", (event) => {
    const number = controls.indexOf(event.target);
    if (number !== reached.at(-1)) reached.push(number);
  });
  return controls.length;
}"""
_LET_GO = """() => {
  document.activeElement.blur();
  document.body.removeAttribute("tabindex");
  scrollTo(0, 0);
}"""
_LETTERS = "(size) => { document.documentElement.style.fontSize = size }"
_WIDER_THAN_WINDOW = """() => {
  const room = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= room) return [];
  const wide = [...document.querySelectorAll("body *")].filter(
    (each) => each.getBoundingClientRect().right > room + 1 && !each.closest(".scroll"));
  const names = wide.map((each) => each.outerHTML.slice(0, 90));
  return [document.documentElement.scrollWidth - room, ...names];
}"""
_MARKUP_IN_ATTRIBUTES = """() => [...document.querySelectorAll("*")]
  .filter((each) => [...each.attributes].some(({ value }) => value.includes("<")))
  .map((each) => each.outerHTML.slice(0, 120))"""
_REPORT_VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"""


@dataclass
class Walk:
    """What was found on the way, by the names of the pages."""

    paths: dict[str, str]
    heard: list[str] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    sticks_out: dict[tuple[str, str], list[object]] = field(default_factory=dict)
    findings: set[tuple[str, str, str, str]] = field(default_factory=set)
    malformed: dict[str, list[str]] = field(default_factory=dict)
    out_of_order: dict[str, list[int]] = field(default_factory=dict)


def walked(page: Page, history: History, only: Sequence[str] = ()) -> Walk:
    """Sign in, go to every page (or these) once, and look at it in every way; the page is new."""
    walk, scale = Walk(paths(history)), _Scale(page)
    page.on("pageerror", lambda error: walk.heard.append(f"error: {error}"))
    page.on("console", lambda said: walk.heard.extend(_complaint(said)))
    # A page's own policy holds for neither, and stays in force for all else.
    page.add_init_script(_REPORT_VIOLATIONS)
    page.add_init_script(Axe().axe_script)
    page.set_viewport_size(SCREEN)
    sign_in(page, history.admin.email)
    for name, go in stops(history):
        if only and name not in only:
            continue
        go(page)
        page.wait_for_load_state()  # with its style
        db.session.rollback()  # PostgreSQL ends a transaction that idles for a minute
        walk.weights[name] = scale.weight()
        if malformed := page.evaluate(_MARKUP_IN_ATTRIBUTES):
            walk.malformed[name] = malformed
        # first, before a live page is refreshed under the focus
        if name in KINDS_OF_PAGES and (reached := _out_of_order(page)):
            walk.out_of_order[name] = reached
        walk.findings |= {(name, *finding) for finding in _findings(page)}
        walk.sticks_out |= {(name, how): what for how, what in _sticking_out(page)}
    return walk


def _out_of_order(page: Page) -> list[int]:
    """The numbers of the controls as the Tab key reaches them, if it is not in their order."""
    expected = list(range(page.evaluate(_NUMBER_CONTROLS)))
    reached: list[int] = []
    keys_left = MOST_STOPS_OF_ONE * len(expected)
    while len(reached) < len(expected) and keys_left > 0:
        missing = len(expected) - len(reached)
        for _ in range(missing):
            page.keyboard.press("Tab")
        keys_left -= missing
        reached = page.evaluate("reached")
    page.evaluate(_LET_GO)
    return reached if reached != expected else []


def _findings(page: Page) -> Iterator[tuple[Scheme, str, str]]:
    """The scheme, the rule and the place of each finding of axe."""
    for scheme, rules in _SCHEMES.items():
        page.emulate_media(color_scheme=scheme)
        for rule, place in page.evaluate(_FINDINGS, rules):
            yield scheme, rule, place


def _sticking_out(page: Page) -> Iterator[tuple[str, list[object]]]:
    """What is too wide, on a phone and with large letters."""
    page.set_viewport_size(PHONE)
    if too_wide := page.evaluate(_WIDER_THAN_WINDOW):
        yield "phone", too_wide
    page.set_viewport_size(HALF_A_SCREEN)
    page.evaluate(_LETTERS, "200%")
    if too_wide := page.evaluate(_WIDER_THAN_WINDOW):
        yield "zoomed", too_wide
    page.evaluate(_LETTERS, "")
    page.set_viewport_size(SCREEN)


def _complaint(said: ConsoleMessage) -> list[str]:
    """What the console was told, if it matters: that a page says 404 is as it should be."""
    url = urlsplit(said.location["url"]).path
    is_page = not url.startswith("/static/")
    is_status = said.text.startswith("Failed to load resource") and is_page
    return [] if said.type not in ("error", "warning") or is_status else [f"{url}: {said.text}"]


class _Scale:
    """Weighs pages as they come over the wire, each with the style and scripts that it links."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._answers: list[Response] = []
        self._weights: dict[str, int] = {}
        page.on("response", self._put)

    def weight(self) -> int:
        """The bytes of the page that came last."""
        html = self._answers[-1].text()
        linked = set(re.findall(r'(?:href|src)="(/static/[^"]+\.(?:css|js)[^"]*)"', html))
        for each in linked - self._weights.keys():
            self._weights[each] = _zipped(self._page.request.get(each).text())
        return _zipped(html) + sum(self._weights[each] for each in linked)

    def _put(self, answer: Response) -> None:
        if answer.request.is_navigation_request():
            self._answers.append(answer)


def _zipped(text: str) -> int:
    return len(gzip.compress(text.encode()))
