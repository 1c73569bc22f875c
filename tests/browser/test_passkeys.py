"""Passkeys in a real browser, with authenticators that Chromium makes up (WebAuthn over CDP)."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, CDPSession, Page, expect

from refine.extensions import db
from refine.models import SecondFactor, User
from tests import factories
from tests.browser.visiting import button, heading, sign_in
from tests.web.conftest import records

MINE = "/profile/second-factors"


class Device:
    """A virtual authenticator of one page's browser, which checks its user without asking."""

    def __init__(self, page: Page, **options: Any) -> None:
        self.cdp: CDPSession = page.context.new_cdp_session(page)
        self.cdp.send("WebAuthn.enable")
        about = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasResidentKey": True,
            "hasUserVerification": True,
            "isUserVerified": True,
            "automaticPresenceSimulation": True,
            **options,
        }
        made = self.cdp.send("WebAuthn.addVirtualAuthenticator", {"options": about})
        self.id = made["authenticatorId"]

    def credentials(self) -> list[dict[str, Any]]:
        found = self.cdp.send("WebAuthn.getCredentials", {"authenticatorId": self.id})
        return list(found["credentials"])

    def put(self, credential: dict[str, Any]) -> None:
        about = {"authenticatorId": self.id, "credential": credential}
        self.cdp.send("WebAuthn.addCredential", about)


@pytest.fixture
def elsewhere(new_context: Callable[..., BrowserContext]) -> Page:
    """A page of another browser."""
    return new_context().new_page()


def added(desk: Page) -> Device:
    device = Device(desk)
    desk.goto(MINE)
    desk.get_by_label("Name").fill("laptop")
    button(desk, "Add a passkey").click()
    expect(heading(desk, "Recovery codes")).to_be_visible()
    return device


@pytest.mark.slow
def test_a_passkey_signs_in_alone_and_after_the_password(
    desk: Page, admin: User, elsewhere: Page
) -> None:
    credential = added(desk).credentials()[0]
    desk.goto(MINE)
    expect(desk.get_by_role("rowheader", name="laptop")).to_be_visible()
    Device(elsewhere).put(credential)

    elsewhere.goto("/sign-in?next=/agents")
    button(elsewhere, "Sign in with a passkey").click()
    expect(heading(elsewhere, "Agents")).to_be_visible()
    button(elsewhere, "Sign out").click()
    elsewhere.get_by_label("E-mail").fill(admin.email)
    elsewhere.get_by_label("Password").fill(factories.PASSWORD)
    button(elsewhere, "Sign in").click()
    expect(heading(elsewhere, "Second factor")).to_be_visible()
    button(elsewhere, "Use a passkey instead").click()
    expect(heading(elsewhere, "Overview")).to_be_visible()


def test_a_cloned_authenticator_is_refused(desk: Page, admin: User, elsewhere: Page) -> None:
    device = added(desk)
    copy = device.credentials()[0]
    for _ in range(2):  # the original goes on counting
        desk.context.clear_cookies()
        desk.goto("/sign-in")
        button(desk, "Sign in with a passkey").click()
        expect(heading(desk, "Overview")).to_be_visible()
    Device(elsewhere).put(copy)

    elsewhere.goto("/sign-in")
    button(elsewhere, "Sign in with a passkey").click()

    expect(elsewhere.get_by_text("This passkey was copied")).to_be_visible()
    assert len(records("passkey_refused")) == 1


def test_the_passkey_of_another_site_and_user_is_refused(
    desk: Page, admin: User, elsewhere: Page, site: str
) -> None:
    added(desk)
    other = factories.user(account=admin.account)
    factories.app_of(other)
    db.session.commit()
    Device(elsewhere)  # with nothing on it

    elsewhere.goto("/sign-in")
    button(elsewhere, "Sign in with a passkey").click()
    expect(elsewhere.get_by_text("No passkey was used.")).to_be_visible()

    # the same server by another name: the browser itself refuses the host
    elsewhere.goto(site.replace("localhost", "127.0.0.1") + "/sign-in")
    button(elsewhere, "Sign in with a passkey").click()
    expect(elsewhere.get_by_text("No passkey was used.")).to_be_visible()


def test_an_authenticator_that_does_not_check_its_user_adds_nothing(
    desk: Page, admin: User
) -> None:
    Device(desk, isUserVerified=False)
    desk.goto(MINE)
    desk.get_by_label("Name").fill("key")
    button(desk, "Add a passkey").click()

    expect(desk.get_by_text("No passkey was used.")).to_be_visible()
    assert SecondFactor.of(admin, "passkey") == []


def test_an_app_is_added_and_given_without_javascript(
    new_context: Callable[..., BrowserContext], admin: User
) -> None:
    page = new_context(java_script_enabled=False).new_page()
    sign_in(page, admin.email)
    page.goto(MINE)
    expect(button(page, "Add a passkey")).to_be_hidden()
    button(page, "Add an app").click()
    key = page.get_by_label("Key").input_value()
    expect(page.get_by_alt_text("QR code of the key")).to_be_visible()
    page.get_by_label("Code").fill(factories.code_of(key))
    button(page, "Continue").click()
    expect(heading(page, "Recovery codes")).to_be_visible()
    codes = page.locator("main code").all_inner_texts()
    assert len(codes) == 10

    button(page, "Sign out").click()
    page.get_by_label("E-mail").fill(admin.email)
    page.get_by_label("Password").fill(factories.PASSWORD)
    button(page, "Sign in").click()
    page.get_by_label("Code").fill(codes[0])
    button(page, "Continue").click()
    expect(heading(page, "Overview")).to_be_visible()
