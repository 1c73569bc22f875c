"""What a visitor does again and again."""

from flask import current_app
from playwright.sync_api import Locator, Page, expect

from refine.extensions import db
from refine.models import Agent, SignIn, User
from tests import factories


def sign_in(page: Page, email: str, password: str = factories.PASSWORD) -> None:
    """Sign in by the form, and see the overview."""
    page.goto("/sign-in")
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(heading(page, "Overview")).to_be_visible()


def begin_signed_in(page: Page, user: User, site: str) -> None:
    """Begin at the overview with the cookie of a sign-in, as if the user had come back."""
    secret = SignIn.begin(user).secret
    db.session.commit()
    client = current_app.test_client()
    with client.session_transaction() as kept:
        kept.update({"_user_id": secret, "_fresh": True})
    cookie = client.get_cookie(current_app.config["SESSION_COOKIE_NAME"])
    assert cookie is not None
    page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": site}])
    page.goto("/")
    expect(heading(page, "Overview")).to_be_visible()


def heading(page: Page, name: str) -> Locator:
    """The page's own heading."""
    return page.get_by_role("heading", level=1, name=name)


def button(page: Page, name: str) -> Locator:
    """The button of exactly that name."""
    return page.get_by_role("button", name=name, exact=True)


def state(page: Page, word: str) -> Locator:
    """The session's state, in large, where it is this one."""
    return page.locator("#state").get_by_text(word)


def rows(page: Page, region: str) -> Locator:
    """The rows of the table in the region of that name."""
    return page.get_by_role("region", name=region).locator("tbody tr")


def kept(agent: Agent) -> list[int]:
    """The ids of the core memories that the agent has by now."""
    db.session.rollback()
    return [memory.id for memory in db.session.scalars(agent.ledger.core())]
