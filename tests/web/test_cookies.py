"""The cookies, one by one, each with each of its attributes, with and without https."""

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import User
from tests.factories import PASSWORD
from tests.web.conftest import Browser, browser_of, person

WithSettings = Callable[..., Flask]

# What each cookie is for, and for how many seconds a browser keeps it: None until it closes.
COOKIES = {"session": None}

ATTRIBUTES = ("HttpOnly", "SameSite=Lax", "Path=/")


class Cookie(NamedTuple):
    name: str
    value: str
    attributes: list[str]


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


@pytest.fixture(params=["http", "https"])
def reached(request: pytest.FixtureRequest, app: Flask) -> Flask:
    """The application, by either scheme."""
    return request.getfixturevalue("over_https") if request.param == "https" else app


def cookies_of(app: Flask, email: str) -> dict[str, Cookie]:
    """The cookies that somebody's browser is given, by what they are for."""
    browser = browser_of(app)
    answer = browser.sign_in(email)
    sent = [parsed(each) for each in answer.headers.getlist("Set-Cookie")]
    return {purpose_of(each): each for each in sent}


def parsed(header: str) -> Cookie:
    pair, *attributes = header.split("; ")
    name, _, value = pair.partition("=")
    return Cookie(name, value, attributes)


def purpose_of(cookie: Cookie) -> str:
    return re.sub(r"-\d+$", "", cookie.name.removeprefix("__Host-"))


def is_signed_in(browser: Browser) -> bool:
    return browser.get("/profile").status_code == 200


# -- attributes ------------------------------------------------------------------------------------


def test_each_cookie_carries_each_attribute_and_is_forgotten_in_its_time(
    reached: Flask, ada: User
) -> None:
    cookies = cookies_of(reached, ada.email)

    assert cookies.keys() == COOKIES.keys()
    for purpose, seconds in COOKIES.items():
        sent = cookies[purpose].attributes
        assert {*ATTRIBUTES} <= {*sent}, purpose
        assert "Domain" not in str(sent)
        lasts = [each for each in sent if each.startswith("Max-Age=")]
        assert lasts == ([] if seconds is None else [f"Max-Age={seconds}"]), purpose
        assert seconds is not None or "Expires" not in str(sent)


def test_cookies_are_held_to_https_and_to_their_host_where_there_is_https(
    app: Flask, over_https: Flask, ada: User
) -> None:
    plain, secure = cookies_of(app, ada.email), cookies_of(over_https, ada.email)

    assert not [each for each in plain.values() if "Secure" in each.attributes]
    assert all("Secure" in each.attributes for each in secure.values())
    # browsers hold a cookie of this name to exactly that: this host, https, every path
    assert all(each.name.startswith("__Host-") for each in secure.values())


# -- what a cookie is worth ------------------------------------------------------------------------


def test_a_planted_cookie_without_the_prefix_signs_nobody_in(over_https: Flask, ada: User) -> None:
    genuine = cookies_of(over_https, ada.email)["session"]
    browser, planted = browser_of(over_https), browser_of(over_https)
    browser.set_cookie(genuine.name, genuine.value, secure=True)
    planted.set_cookie("session", genuine.value, secure=True)

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
def test_an_altered_session_cookie_signs_nobody_in(
    app: Flask, ada: User, change: Callable[[str], str]
) -> None:
    value = cookies_of(app, ada.email)["session"].value
    browser = browser_of(app)
    browser.set_cookie("session", change(value))

    assert not is_signed_in(browser)


def test_a_session_planted_before_the_sign_in_is_worth_nothing_after_it(
    app: Flask, ada: User, client: Browser
) -> None:
    client.token()
    planted = client.get_cookie("session")
    assert planted is not None
    eve = browser_of(app)
    eve.set_cookie("session", planted.value)

    client.sign_in(ada.email)

    assert is_signed_in(client)
    assert not is_signed_in(eve)


def test_a_session_cookie_holds_no_name_and_no_password(app: Flask, ada: User) -> None:
    browser = browser_of(app)
    browser.sign_in(ada.email)

    with browser.session_transaction() as kept:
        assert set(kept) <= {"_user_id", "_fresh", "_id", "csrf_token", "_flashes"}
        assert not {ada.email, PASSWORD} & {str(value) for value in kept.values()}
