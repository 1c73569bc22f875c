"""Signing in at a provider of identities, in a real browser; and the pages around it."""

from collections.abc import Iterator

import pytest
from flask import Flask
from playwright.sync_api import Page, expect

from refine import create_app
from refine.extensions import db
from refine.settings import Settings
from tests import factories
from tests.browser.serving import free_port, serving
from tests.identity_provider import CLIENT_ID, Provider, real_provider

# of the provider alone, which still uses what Authlib is about to drop
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::authlib.deprecate.AuthlibDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning"),
]


@pytest.fixture
def identities() -> Iterator[Provider]:
    with real_provider() as running:
        yield running


@pytest.fixture
def place(installation: dict[str, str], app: Flask, identities: Provider) -> Iterator[str]:
    """A web server whose users sign in at the provider."""
    port = free_port()
    named = {
        "REFINE_OIDC_ISSUER": identities.issuer,
        "REFINE_OIDC_CLIENT_ID": CLIENT_ID,
        "REFINE_OIDC_CLIENT_SECRET": "a secret",
        "PORT": str(port),
        "PUBLIC_URL": f"http://localhost:{port}",
    }
    made = create_app(Settings.from_environ({**installation, **named}))
    with serving(made, port):
        yield named["PUBLIC_URL"]
    with made.app_context():
        db.engine.dispose()


def test_somebody_signs_in_at_the_provider_sees_it_and_signs_out_everywhere(
    page: Page, place: str, identities: Provider
) -> None:
    factories.account(slug="own", name="Own account")
    db.session.commit()
    identities.know("ada", roles=["refine:admin@own"])

    page.goto(f"{place}/users")
    page.get_by_role("link", name="Sign in at localhost").click()
    page.locator("input[name=sub]").fill("ada")
    page.locator("input[name=sub]").press("Enter")

    expect(page).to_have_url(f"{place}/users")
    expect(page.get_by_role("row", name="ada@example.org")).to_contain_text("you")
    page.goto(f"{place}/profile/sign-ins")
    expect(page.get_by_role("row", name="Chrome")).to_contain_text("single sign-on")
    page.get_by_role("button", name="Sign out everywhere").click()
    expect(page.get_by_role("heading", name="Sign in to Refine")).to_be_visible()


def test_an_account_may_demand_a_second_factor_of_those_who_come_by_the_provider(
    page: Page, place: str, identities: Provider
) -> None:
    factories.account(slug="own", second_factor_required=True)
    db.session.commit()
    identities.know("ada", roles=["refine:admin@own"])

    def sign_in() -> None:
        page.goto(f"{place}/agents")
        page.get_by_role("link", name="Sign in at localhost").click()
        page.locator("input[name=sub]").fill("ada")
        page.locator("input[name=sub]").press("Enter")

    sign_in()
    expect(page.get_by_text("demands a second factor. Add one to go on.")).to_be_visible()
    page.get_by_role("button", name="Add an app").click()
    key = page.get_by_label("Key").input_value()
    page.get_by_label("Code").fill(factories.code_of(key))
    page.get_by_role("button", name="Continue").click()
    code = page.locator(".codes code").first.inner_text()
    page.get_by_role("link", name="I have kept them").click()
    page.get_by_role("button", name="Sign out").click()

    sign_in()
    page.get_by_label("Code").fill(code)
    page.get_by_role("button", name="Continue").click()

    expect(page).to_have_url(f"{place}/agents")
