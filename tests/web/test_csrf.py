"""The tokens of forms: which of them let a form of a signed-in browser do something.

That every route asks for one, and refuses requests of other sites even with one, is in
``test_every_route.py``.
"""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from itsdangerous import URLSafeTimedSerializer

from refine.extensions import db
from refine.models import User
from tests import sql
from tests.web.conftest import Browser, SignedIn, browser_of, person


@pytest.fixture
def admin(admin: User) -> User:
    db.session.commit()
    return admin


def is_paused(admin: User) -> bool:
    db.session.refresh(admin.account)
    return admin.account.paused


def pause(browser: Browser, token: str | None, **options: Any) -> int:
    """Pause the account with this token; return the status of the answer."""
    fields = {"paused": "1"} if token is None else {"paused": "1", "csrf_token": token}
    return browser.post("/schedule", data=fields, **options).status_code


def test_a_token_of_the_browsers_own_session_is_accepted(admin: User, dashboard: Browser) -> None:
    assert pause(dashboard, dashboard.token()) == 303
    assert is_paused(admin)


@pytest.mark.parametrize(
    "change",
    [
        lambda token: None,
        lambda token: "",
        lambda token: "x",
        lambda token: token + "x",
        lambda token: token[1:],
        lambda token: token.swapcase(),
        lambda token: token.partition(".")[0],
        lambda token: "\0",
    ],
)
def test_a_missing_or_altered_token_is_refused(
    admin: User, dashboard: Browser, change: Callable[[str], str | None]
) -> None:
    assert pause(dashboard, change(dashboard.token())) == 400
    assert not is_paused(admin)


def test_a_token_of_another_user_is_refused(app: Flask, admin: User, dashboard: Browser) -> None:
    colleague = person(account=admin.account)
    db.session.commit()
    eve = browser_of(app)
    eve.sign_in(colleague.email)

    assert pause(dashboard, eve.token()) == 400
    assert not is_paused(admin)


def test_a_token_of_another_session_of_the_same_user_is_refused(
    app: Flask, admin: User, dashboard: Browser
) -> None:
    elsewhere = browser_of(app)
    elsewhere.sign_in(admin.email)

    assert pause(dashboard, elsewhere.token()) == 400
    assert not is_paused(admin)


def test_a_token_from_before_the_sign_in_is_refused(admin: User, client: Browser) -> None:
    before = client.token()
    client.sign_in(admin.email)

    assert pause(client, before) == 400
    assert not is_paused(admin)


def test_a_token_from_before_a_sign_out_is_refused_after_the_next_sign_in(
    admin: User, client: Browser
) -> None:
    client.sign_in(admin.email)
    before = client.token()
    client.submit("/sign-out")
    client.forget_token()
    client.sign_in(admin.email)

    assert pause(client, before) == 400
    assert not is_paused(admin)


def test_a_token_signed_with_another_key_is_refused(admin: User, dashboard: Browser) -> None:
    forged = URLSafeTimedSerializer("another secret, of 32 bytes or more", "wtf-csrf-token")
    with dashboard.session_transaction() as kept:
        own = kept["csrf_token"]

    assert pause(dashboard, str(forged.dumps(own))) == 400
    assert not is_paused(admin)


def test_a_token_in_the_address_is_refused(admin: User, dashboard: Browser) -> None:
    token = dashboard.token()

    assert pause(dashboard, None, query_string={"csrf_token": token}) == 400
    assert not is_paused(admin)


def test_a_token_that_only_a_cookie_carries_is_refused(admin: User, dashboard: Browser) -> None:
    dashboard.set_cookie("csrf_token", dashboard.token())

    assert pause(dashboard, None) == 400
    assert not is_paused(admin)


def test_a_token_that_only_json_carries_is_refused(admin: User, dashboard: Browser) -> None:
    body = {"csrf_token": dashboard.token(), "paused": "1"}

    assert dashboard.post("/schedule", json=body).status_code == 400
    assert not is_paused(admin)


def test_a_token_without_its_cookie_is_refused(app: Flask, admin: User, dashboard: Browser) -> None:
    token = dashboard.token()
    dashboard.delete_cookie("session")

    assert pause(dashboard, token) == 400
    assert not is_paused(admin)


def test_a_token_lasts_no_longer_than_its_sign_in(admin: User, dashboard: Browser) -> None:
    token = dashboard.token()
    sql.rewrite("UPDATE sign_ins SET ended_at = now()")

    assert pause(dashboard, token) == 303  # to the sign-in
    assert not is_paused(admin)


def test_a_token_opens_nothing_that_its_user_may_not_do(admin: User, signed_in: SignedIn) -> None:
    viewer = signed_in(person(account=admin.account, role="viewer"))

    assert pause(viewer, viewer.token()) == 403
    assert not is_paused(admin)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"])
def test_no_other_method_does_what_a_form_does(
    admin: User, dashboard: Browser, method: str
) -> None:
    fields = {"paused": "1", "csrf_token": dashboard.token()}

    dashboard.open("/schedule", method=method, data=fields, query_string={"paused": "1"})
    dashboard.open("/schedule?_method=POST", method=method, headers={"X-HTTP-Method": "POST"})

    assert not is_paused(admin)


def test_the_header_of_scripts_is_held_to_the_same(
    app: Flask, admin: User, dashboard: Browser
) -> None:
    elsewhere = browser_of(app)
    elsewhere.sign_in(admin.email)

    assert pause(dashboard, None, headers={"X-CSRFToken": elsewhere.token()}) == 400
    assert not is_paused(admin)
