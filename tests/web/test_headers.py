"""The security headers, one by one, on every kind of answer.

Which page of content sends which headers when access ends is in ``test_access.py``.
"""

import gzip
import re

import pytest
from werkzeug.test import TestResponse

from refine.extensions import db
from refine.models import Invitation
from tests import factories
from tests.web.conftest import Browser, browser_of

HTTPS = "https://refine.example.org"

# One answer of each kind: of pages, of the API, of errors, of files, of programs that watch.
ANSWERS = {
    "/": 200,
    "/agents": 200,
    "/audit/export.jsonl": 200,
    "/sign-in": 302,
    "/agents?page=nonsense": 400,
    "/accounts": 403,
    "/nowhere": 404,
    "/agents/0": 404,
    "/sign-out": 405,
    "/static/refine.css": 200,
    "/static/nowhere.css": 404,
    "/healthz": 200,
    "/readyz": 200,
    "/metrics": 200,
    "/api/v1/openapi.json": 200,
    "/api/v1/context": 401,
    "/api/v1/nowhere": 404,
}

DIRECTIVES = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

# What no page asks a browser for.
POWERS = ("camera", "display-capture", "geolocation", "microphone", "payment")


def answers_to(browser: Browser, **options: str) -> dict[str, TestResponse]:
    """Each kind of answer, by its path."""
    answers = {path: browser.get(path, **options) for path in ANSWERS}
    assert {path: answer.status_code for path, answer in answers.items()} == ANSWERS
    return answers


def policy_of(answer: TestResponse) -> dict[str, str]:
    """The Content-Security-Policy by directive."""
    directives = answer.headers["Content-Security-Policy"].split("; ")
    return dict(directive.split(" ", 1) for directive in directives)


# -- on every answer -------------------------------------------------------------------------------


def held(answer: TestResponse) -> bool:
    """Whether it carries the whole policy, each header once, and no power."""
    denied = answer.headers["Permissions-Policy"].split(", ")
    return (
        policy_of(answer) == DIRECTIVES
        and all(answer.headers.getlist(name) == [value] for name, value in ALWAYS.items())
        and {f"{power}=()" for power in POWERS} <= {*denied}
    )


def test_every_answer_carries_every_header(dashboard, cut_off):
    answers = answers_to(dashboard) | {"without a database": cut_off.get("/agents")}

    assert [path for path, answer in answers.items() if not held(answer)] == []
    assert answers["without a database"].status_code == 503
    assert answers["without a database"].headers["Cache-Control"] == "no-store"


# -- https -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [HTTPS, "HTTPS://Refine.Example.org", f"{HTTPS}:8443"])
def test_sites_with_https_are_only_asked_by_https_from_then_on(with_settings, url):
    answer = browser_of(with_settings(PUBLIC_URL=url)).get("/healthz", base_url=HTTPS)

    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


def test_sites_without_https_do_not_ask_for_it(dashboard):
    asked = [each for each in answers_to(dashboard).values() if "Strict-" in str(each.headers)]

    assert asked == []


# -- what is kept, and by whom ---------------------------------------------------------------------


def test_nothing_but_files_is_kept_by_a_browser_or_a_proxy(dashboard):
    sent = {path: each.headers["Cache-Control"] for path, each in answers_to(dashboard).items()}

    assert sent == dict.fromkeys(ANSWERS, "no-store") | {"/static/refine.css": "no-cache"}


# -- what is compressed ----------------------------------------------------------------------------


def zipped(site: str) -> dict[str, str]:
    """What a browser sends that a page of ``site`` makes ask."""
    return {"Accept-Encoding": "gzip", "Sec-Fetch-Site": site}


def is_compressed(answer: TestResponse) -> bool:
    assert answer.status_code == 200
    return answer.headers.get("Content-Encoding") == "gzip"


@pytest.mark.parametrize("path", ["/", "/static/refine.css"])
def test_pages_and_files_are_compressed(dashboard, path):
    plain = dashboard.get(path)
    answer = dashboard.get(path, headers=zipped("none"))

    assert is_compressed(answer)
    assert "Accept-Encoding" in answer.headers["Vary"]
    assert len(answer.data) < len(plain.data) / 2
    assert gzip.decompress(answer.data)[:200] == plain.data[:200]
    again = {**zipped("none"), "If-None-Match": answer.headers.get("ETag", "")}
    assert dashboard.get(path, headers=again).status_code == 304


def test_no_page_is_compressed_in_which_lengths_could_tell_a_secret(dashboard, client, admin):
    agent = factories.agent("one", account=admin.account)
    factories.live_grant(agent, admin)
    link = Invitation.issue(factories.user())
    db.session.commit()

    own = {"headers": zipped("same-origin")}
    assert is_compressed(dashboard.get("/agents?q=guess", **own))
    answers = [dashboard.get("/agents?q=guess", headers=zipped(s)) for s in ("cross-site", "", "x")]
    answers.append(dashboard.get(f"/agents/{agent.id}/ledger", **own))  # has content
    answers.append(dashboard.submit("/users", {"email": "new@example.org"}, **own))
    answers += [client.get(path, **own) for path in ("/sign-in", f"/invitations/{link}")]
    answers.append(client.get("/api/v1/openapi.json", **own))

    assert [is_compressed(each) for each in answers] == [False] * len(answers)
    assert "/invitations/" in answers[4].text


# -- other sites -----------------------------------------------------------------------------------


def test_no_other_site_may_read_an_answer(dashboard):
    origin = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}

    answers = [
        dashboard.open(path, method=method, headers=origin)
        for path in ANSWERS
        for method in ("GET", "OPTIONS")
    ]

    assert [each for each in answers if "Access-Control-" in str(each.headers)] == []


@pytest.mark.parametrize("path", ["/", "/agents", "/audit", "/ops", "/schedule", "/users"])
def test_pages_have_no_inline_scripts_or_styles(dashboard, path):
    page = dashboard.get(path).text

    assert re.findall(r"<[^>]*\s(?:style|on\w+)=", page) == []
    assert "<style" not in page
    assert re.findall(r"<script(?![^>]* src=)", page) == []
