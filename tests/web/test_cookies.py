"""The session's cookie, the only one: its attributes, and what it is worth."""

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import User
from tests.factories import PASSWORD
from tests.web.conftest import Browser, WithSettings, browser_of, person

# a browser keeps it until it closes, and holds __Host- to this host, https and every path
PLAIN = ("session", {"HttpOnly", "SameSite=Lax", "Path=/"})
SECURE = ("__Host-session", PLAIN[1] | {"Secure"})


@pytest.fixture
def ada(app: Flask) -> User:
    user = person(email="ada@example.org")
    db.session.commit()
    return user


@pytest.fixture
def over_https(app: Flask, with_settings: WithSettings) -> Flask:
    """The application behind https, as are its browsers."""
    application = with_settings(PUBLIC_URL="https://refine.example.org")
    application.config["PREFERRED_URL_SCHEME"] = "https"
    return application


def cookie_of(app: Flask, email: str) -> tuple[str, str, set[str]]:
    """The only cookie that somebody's browser is given: name, value, attributes."""
    (header,) = browser_of(app).sign_in(email).headers.getlist("Set-Cookie")
    pair, *attributes = header.split("; ")
    name, _, value = pair.partition("=")
    return name, value, set(attributes)


def is_signed_in(browser: Browser) -> bool:
    return browser.get("/profile").status_code == 200


def test_the_cookie_has_its_attributes_and_no_others(app, over_https, ada):
    for reached, expected in ((app, PLAIN), (over_https, SECURE)):
        name, _, attributes = cookie_of(reached, ada.email)

        assert (name, attributes) == expected


# -- what a cookie is worth ------------------------------------------------------------------------


def test_a_planted_cookie_without_the_prefix_signs_nobody_in(over_https, ada):
    name, value, _ = cookie_of(over_https, ada.email)
    browser, planted = browser_of(over_https), browser_of(over_https)
    browser.set_cookie(name, value, secure=True)
    planted.set_cookie("session", value, secure=True)

    assert is_signed_in(browser)
    assert not is_signed_in(planted)


@pytest.mark.parametrize(
    "change",
    [
        lambda value: "",
        lambda value: "x",
        lambda value: value[:-5] + ("A" if value[-5] != "A" else "B") + value[-4:],
        lambda value: value.partition(".")[0],
        lambda value: value.swapcase(),
        lambda value: f"{value}.{value}",
    ],
)
def test_an_altered_session_cookie_signs_nobody_in(app, ada, change):
    _, value, _ = cookie_of(app, ada.email)
    browser = browser_of(app)
    browser.set_cookie("session", change(value))

    assert not is_signed_in(browser)


def test_a_session_planted_before_the_sign_in_is_worth_nothing_after_it(app, ada, client):
    client.token()
    planted = client.get_cookie("session")
    assert planted is not None
    eve = browser_of(app)
    eve.set_cookie("session", planted.value)

    client.sign_in(ada.email)

    assert is_signed_in(client)
    assert not is_signed_in(eve)


def test_a_session_cookie_holds_no_name_and_no_password(app, ada):
    browser = browser_of(app)
    browser.sign_in(ada.email)

    with browser.session_transaction() as kept:
        assert set(kept) <= {"_user_id", "_fresh", "_id", "csrf_token", "_flashes"}
        assert not {ada.email, PASSWORD} & {str(value) for value in kept.values()}
