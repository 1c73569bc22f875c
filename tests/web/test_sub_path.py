"""Everything below a path of the host, as behind a proxy that serves other things beside it."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from tests.web.conftest import Browser, browser_of, signed_in_browser
from tests.web.crawling import crawl
from tests.web.test_every_route import ACTED, form_of, path_of

PREFIX = "/refine"
# whatever the attribute is called: links, actions, sources, what htmx asks for, where forms go on
_PATH = re.compile(r'[\w:-]+="(/[^"]*)"')
_REFRESH = re.compile(r'url=(/[^"]*)')

Door = dict[str, Any]
BY_ENVIRON: Door = {"base_url": f"http://localhost{PREFIX}"}  # SCRIPT_NAME, as `refine web` sets it
BY_HEADER: Door = {"headers": {"X-Forwarded-Prefix": PREFIX}}

DOORS = pytest.mark.parametrize("door", [BY_ENVIRON, BY_HEADER], ids=["environ", "header"])
# behind the door all is the same
ONE_QUICKLY = pytest.mark.parametrize(
    "door",
    [pytest.param(BY_ENVIRON, marks=pytest.mark.nightly), BY_HEADER],
    ids=["environ", "header"],
)


class Below:
    """A browser that sees all pages below the prefix; nothing may lead it out of there."""

    def __init__(self, browser: Browser, door: Door) -> None:
        self.browser = browser
        self._door = door

    def get(self, url: str, /) -> TestResponse:
        return self._inside(url, self.browser.get(url.removeprefix(PREFIX), **self._door))

    def submit(self, url: str, fields: dict[str, Any], **headers: str) -> TestResponse:
        options = {**self._door, "headers": {**self._door.get("headers", {}), **headers}}
        answer = self.browser.submit(url.removeprefix(PREFIX), fields, **options)
        return self._inside(url, answer)

    def _inside(self, url: str, answer: TestResponse) -> TestResponse:
        is_page = answer.mimetype == "text/html"
        led = [*_PATH.findall(answer.text), *_REFRESH.findall(answer.text)] if is_page else []
        led += [value for _, value in answer.headers if value.startswith("/")]
        assert [path for path in map(unescape, led) if not is_inside(path)] == [], url
        return answer


def is_inside(path: str) -> bool:
    return path == PREFIX or path.startswith(f"{PREFIX}/")


@pytest.fixture
def behind_one(with_settings: Callable[..., Flask]) -> Flask:
    return with_settings(REFINE_PROXIES="1")


@ONE_QUICKLY
def test_no_page_leads_out_of_the_prefix(behind_one, world, door):
    below = Below(signed_in_browser(behind_one, world.site_admin), door)
    nobody = Below(browser_of(behind_one), door)

    pages = list(crawl(below, f"{PREFIX}/", of_a_kind=1))
    asked = nobody.get(f"{PREFIX}/agents?status=paused")
    nobody.get(asked.location)
    nobody.get(f"{PREFIX}/invitations/{world.invitation}")
    nobody.get(f"{PREFIX}/invitations/unknown")

    assert len(pages) > 45, [url for url, _ in pages]
    assert below.get(f"{PREFIX}/no-such-page").status_code == 404


@ONE_QUICKLY
def test_no_action_leads_out_of_the_prefix(behind_one, world, door):
    for rule in ACTED:
        below = Below(signed_in_browser(behind_one, world.admin), door)
        for headers in ({}, {"HX-Request": "true"}):
            form = form_of(rule, "admin", world.agent.id)
            below.submit(f"{PREFIX}{path_of(rule, world)}", form, **headers)


@DOORS
@pytest.mark.parametrize("public_url", ["https://host.example", "https://host.example/refine"])
def test_links_that_are_sent_lead_below_the_prefix(with_settings, world, door, public_url):
    app = with_settings(REFINE_PROXIES="1", PUBLIC_URL=public_url)
    below = Below(signed_in_browser(app, world.admin), door)

    page = below.submit(
        f"{PREFIX}/users",
        {"email": "new@example.net", "role": "viewer"},
        Origin="https://host.example",
    )

    assert page.status_code == 200
    assert "https://host.example/refine/invitations/" in page.text


@pytest.mark.parametrize(
    "prefix", ["//evil.example", "evil", "/a?b", "/a/../..", "/a b", "https://evil.example", "/é"]
)
def test_an_invalid_prefix_is_ignored(behind_one, prefix):
    answer = browser_of(behind_one).get("/", headers={"X-Forwarded-Prefix": prefix})

    assert answer.location == "/sign-in?next=/"


def test_without_proxies_nobody_names_a_prefix(client):
    answer = client.get("/", headers={"X-Forwarded-Prefix": PREFIX})

    assert answer.location == "/sign-in?next=/"
