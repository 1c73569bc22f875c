"""What is answered where something goes wrong, and what every answer carries."""

import re
from collections.abc import Callable

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent, User
from tests import factories, sql
from tests.commands import UNUSED_PORT
from tests.web.conftest import (
    Browser,
    SignedIn,
    actions_of,
    browser_of,
    links_of,
    person,
    words_of,
)

WithSettings = Callable[..., Flask]

POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
}


# -- headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/agents", 200),
        ("/audit/export.csv", 200),
        ("/nowhere", 404),
        ("/sign-out", 405),
        ("/agents?page=nonsense", 400),
        ("/sign-in", 302),
        ("/readyz", 200),
    ],
)
def test_every_answer_is_shut_to_other_sites_and_kept_by_nobody(
    dashboard: Browser, path: str, status: int
) -> None:
    answer = dashboard.get(path)

    assert answer.status_code == status
    assert set(answer.headers["Content-Security-Policy"].split("; ")) == POLICY
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Strict-Transport-Security" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/agents", "/audit", "/ops", "/schedule", "/users"])
def test_no_page_has_code_or_style_in_it(dashboard: Browser, path: str) -> None:
    page = dashboard.get(path).text

    assert re.findall(r"<[^>]*\s(?:style|on\w+)=", page) == []
    assert "<style" not in page
    assert re.findall(r"<script(?![^>]* src=)", page) == []


def test_the_cookie_is_for_this_site_alone_and_out_of_reach_of_scripts(
    app: Flask, client: Browser
) -> None:
    user = person()
    db.session.commit()

    cookie = client.sign_in(user.email).headers["Set-Cookie"]

    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Secure" not in cookie


def test_with_https_the_cookie_is_secure_and_browsers_remember_https(
    app: Flask, with_settings: WithSettings
) -> None:
    secure = browser_of(with_settings(PUBLIC_URL="https://refine.example.org"))

    answer = secure.get("/sign-in", base_url="https://refine.example.org")

    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    cookie = answer.headers["Set-Cookie"]
    assert {"Secure", "HttpOnly", "SameSite=Lax"} <= set(cookie.split("; "))


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/agents?page=nonsense", 400, "This request could not be read"),
        ("GET", "/accounts", 403, "You may not do this A viewer sees, and does not act"),
        ("GET", "/nowhere", 404, "There is no such page It may have moved"),
        ("GET", "/agents/0", 404, "There is no such page"),
        ("POST", "/agents", 405, "This page does not take that"),
    ],
)
def test_an_error_is_told_in_words_with_a_way_back(
    dashboard: Browser, method: str, path: str, status: int, said: str
) -> None:
    answer = dashboard.submit(path) if method == "POST" else dashboard.get(path)

    assert answer.status_code == status
    assert said in words_of(answer.text)
    assert "/" in links_of(answer.text.partition("<main")[2])


def test_a_page_that_does_not_take_that_names_what_it_takes(dashboard: Browser) -> None:
    answer = dashboard.submit("/agents")

    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"


def test_who_is_not_signed_in_is_told_without_the_menu(client: Browser) -> None:
    answer = client.get("/nowhere")

    assert answer.status_code == 404
    assert "There is no such page" in answer.text
    assert "<nav" not in answer.text


def test_what_is_too_large_is_told(dashboard: Browser) -> None:
    answer = dashboard.submit("/schedule", {"schedule": "x" * (17 * 1024 * 1024)})

    assert answer.status_code == 413
    assert "That is too large Send less at once." in words_of(answer.text)


@pytest.mark.parametrize("path", ["/agents?q=%00", "/agents?account=%00", "/schedule?account=%00"])
def test_what_no_database_can_hold_is_no_fault_of_the_database(
    signed_in: SignedIn, path: str
) -> None:
    browser = signed_in(person(site_admin=True))

    answer = browser.get(path)

    assert answer.status_code == 400
    assert "This request could not be read" in words_of(answer.text)


def test_an_e_mail_that_no_database_can_hold_is_no_fault_of_the_database(client: Browser) -> None:
    assert client.sign_in("a\0@example.org").status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/audit?endpoint=x",
        "/audit?_external=1&_scheme=javascript",
        "/audit?_anchor=x&_method=POST&values=1",
        "/agents?endpoint=x&agent_id=7",
        "/audit?agent=%C2%B2&session=x&since=x&until=9999-12-31&action=x",
        f"/audit?agent={'9' * 5000}",
        f"/sessions?agent={'9' * 5000}",
        "/sessions?agent=%C2%B2",
    ],
)
def test_arguments_that_make_no_sense_are_not_asked_for(signed_in: SignedIn, path: str) -> None:
    browser = signed_in(person(site_admin=True))

    answer = browser.get(path)

    assert answer.status_code == 200
    assert "javascript:" not in answer.text


def test_an_id_of_any_length_is_not_found(dashboard: Browser) -> None:
    answers = [dashboard.get(f"/{area}/{'9' * 5000}") for area in ("agents", "audit")]

    assert [answer.status_code for answer in answers] == [404, 404]


# -- the database away -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/agents", "/ops", "/audit/export.csv", "/nowhere"])
def test_without_the_database_every_page_says_so(
    dashboard: Browser, with_settings: WithSettings, path: str
) -> None:
    cut_off = browser_of(with_settings(DATABASE_URL=f"postgresql://127.0.0.1:{UNUSED_PORT}/x"))
    cookie = dashboard.get_cookie("session")
    assert cookie is not None
    cut_off.set_cookie("session", cookie.value)

    answer = cut_off.get(path)

    assert answer.status_code in (404, 503)
    assert answer.headers["Cache-Control"] == "no-store"
    expected = "There is no such page" if answer.status_code == 404 else "Nothing was lost."
    assert expected in words_of(answer.text)


def test_without_the_database_the_form_to_sign_in_is_there_and_says_so_when_sent(
    app: Flask, with_settings: WithSettings
) -> None:
    cut_off = browser_of(with_settings(DATABASE_URL=f"postgresql://127.0.0.1:{UNUSED_PORT}/x"))

    form, answer = cut_off.get("/sign-in"), cut_off.sign_in("ada@example.org")

    assert form.status_code == 200
    assert answer.status_code == 503
    assert "The database cannot be reached" in words_of(answer.text)


# -- a form that is out of date --------------------------------------------------------------------


def test_what_was_typed_is_kept_and_can_be_sent_again(dashboard: Browser, admin: User) -> None:
    stale = {"csrf_token": "from yesterday", "schedule": "0 5 * * *", "time_zone": "Asia/Tokyo"}

    answer = dashboard.post("/schedule?account=own", data=stale)

    assert answer.status_code == 400
    assert "Nothing was done." in words_of(answer.text)
    assert actions_of(answer.text) == ["/schedule?account=own"]
    assert 'name="schedule" value="0 5 * * *"' in answer.text
    assert "from yesterday" not in answer.text
    sent = dashboard.submit("/schedule?account=own", {"schedule": "0 5 * * *"})
    db.session.refresh(admin.account)
    assert (sent.status_code, admin.account.schedule) == (303, "0 5 * * *")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/sign-in", {"email": "ada@example.org", "password": "my own battery"}),
        (
            "/profile/password",
            {
                "present": "my own battery",
                "password": "my own battery",
                "again": "my own battery",
            },
        ),
        ("/invitations/x", {"password": "my own battery", "again": "my own battery"}),
    ],
)
def test_passwords_are_not_kept(dashboard: Browser, path: str, fields: dict[str, str]) -> None:
    answer = dashboard.post(path, data=fields)

    assert answer.status_code == 400
    assert "my own battery" not in answer.text


def test_what_was_typed_is_shown_as_text(dashboard: Browser) -> None:
    answer = dashboard.post("/schedule", data={"schedule": '"><script src=x></script>'})

    assert "<script src=x>" not in answer.text


# -- names -----------------------------------------------------------------------------------------


def test_names_are_shown_as_text_wherever_they_stand(dashboard: Browser, admin: User) -> None:
    evil = "<img src=x onerror=alert(1)>"
    agent: Agent = factories.agent("one", account=admin.account, name=evil, model_id=evil)
    admin.account.name = evil
    db.session.commit()
    dashboard.submit(f"/agents/{agent.id}/sessions")
    id_ = sql.value("SELECT id FROM refinement_sessions")

    pages = [
        dashboard.get(path).text
        for path in (
            "/",
            "/agents",
            f"/agents/{agent.id}",
            f"/agents/{agent.id}/ledger",
            f"/agents/{agent.id}/settings",
            f"/audit?agent={agent.id}",
            "/sessions",
            f"/sessions/{id_}",
            "/schedule",
            "/tokens",
            "/users",
            "/profile",
        )
    ]

    assert not [page for page in pages if "<img src=x" in page]
    assert "&lt;img src=x" in pages[1]
