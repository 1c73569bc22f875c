"""The tokens of forms: which of them let a form of a signed-in browser do something.

That every route asks for one, and refuses requests of other sites even with one, is in
``test_every_route.py``.
"""

from collections.abc import Callable
from typing import Any

import pytest

from refine.extensions import db
from refine.models import User
from tests.web.conftest import Browser, browser_of, person


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


def test_a_token_of_the_browsers_own_session_is_accepted(admin, dashboard):
    assert pause(dashboard, dashboard.token()) == 303
    assert is_paused(admin)


ALTERED: dict[str, Callable[[str], str | None]] = {
    "missing": lambda token: None,
    "empty": lambda token: "",
    "another word": lambda token: "x",
    "longer": lambda token: token + "x",
    "headless": lambda token: token[1:],
    "other case": lambda token: token.swapcase(),
    "unsigned": lambda token: token.partition(".")[0],
    "NUL": lambda token: "\0",
}


def test_a_missing_or_altered_token_is_refused(admin, dashboard):
    answers = {
        name: pause(dashboard, change(dashboard.token())) for name, change in ALTERED.items()
    }

    assert answers == dict.fromkeys(ALTERED, 400)
    assert not is_paused(admin)


def test_a_token_that_another_browser_was_given_is_refused(app, admin, dashboard):
    colleague = person(account=admin.account)
    db.session.commit()
    elsewhere, eve = browser_of(app), browser_of(app)
    elsewhere.sign_in(admin.email)
    eve.sign_in(colleague.email)

    for browser in (elsewhere, eve):
        assert pause(dashboard, browser.token()) == 400
        assert pause(dashboard, None, headers={"X-CSRFToken": browser.token()}) == 400
    assert not is_paused(admin)


def test_a_token_from_before_the_last_sign_in_is_refused(admin, client):
    before = client.token()
    client.sign_in(admin.email)
    signed_in = client.token()
    client.submit("/sign-out")
    client.forget_token()
    client.sign_in(admin.email)

    assert [pause(client, token) for token in (before, signed_in)] == [400, 400]
    assert not is_paused(admin)


def test_a_token_outside_the_form_or_without_its_cookie_is_refused(admin, dashboard):
    token = dashboard.token()
    in_address = pause(dashboard, None, query_string={"csrf_token": token})
    in_json = dashboard.post("/schedule", json={"csrf_token": token, "paused": "1"}).status_code
    dashboard.set_cookie("csrf_token", token)
    in_cookie = pause(dashboard, None)
    dashboard.delete_cookie("session")
    without_session = pause(dashboard, token)

    assert [in_address, in_json, in_cookie, without_session] == [400] * 4
    assert not is_paused(admin)
