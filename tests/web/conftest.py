"""Browsers without a screen, the people who use them, and an account with one of everything."""

import contextvars
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from html import unescape
from importlib.metadata import version
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from itsdangerous import URLSafeTimedSerializer
from redis import Redis
from werkzeug.test import TestResponse

from refine import clock, create_app
from refine.extensions import db
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    AgentMemory,
    ApiToken,
    AuditLog,
    Delivery,
    Invitation,
    PeriodicWork,
    RefinementSession,
    SignIn,
    User,
)
from refine.models.people import user
from refine.settings import Settings
from refine.tools import RefinementTool
from tests import factories
from tests.commands import UNUSED_PORT
from tests.factories import PASSWORD

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')
_LINK = re.compile(r'(?:href|hx-get|src)="([^"]*)"')
_FORM = re.compile(r'<form method="post"(?: action="([^"]*)")?')


class Browser(FlaskClient):
    """Keeps cookies, and sends the token of its forms.

    Each request runs in a context of its own: else it would find the test's application context,
    and share the database's session and the signed-in user with it.
    """

    csrf_token: str | None = None

    def open(self, *args: Any, **options: Any) -> TestResponse:
        opened = super().open
        return contextvars.Context().run(opened, *args, **{"buffered": True, **options})

    def token(self) -> str:
        """Return the token of this browser's forms, from a page that asks the database little."""
        if self.csrf_token is None:
            found = _TOKEN.search(self.get("/profile", follow_redirects=True).text)
            assert found is not None, "no form with a token"
            self.csrf_token = found[1]
        return self.csrf_token

    def submit(self, path: str, fields: dict[str, Any] | None = None, **options: Any) -> Any:
        """Send a form, as its page would."""
        return self.post(path, data={"csrf_token": self.token(), **(fields or {})}, **options)

    def sign_in(self, email: str, password: str = PASSWORD, **fields: Any) -> TestResponse:
        answer = self.submit("/sign-in", {"email": email, "password": password, **fields})
        self.forget_token()
        return answer  # type: ignore[no-any-return]

    def forget_token(self) -> None:
        """A new session of the browser comes with a new token."""
        self.csrf_token = None


# what records say of where these browsers are
HERE = {"from": {"address": "127.0.0.1", "browser": f"Werkzeug/{version('werkzeug')}"}}

SignedIn = Callable[[User], Browser]
WithSettings = Callable[..., Flask]

person = factories.user


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2 takes its full time where passwords themselves are tested."""
    monkeypatch.setattr(user, "_hasher", factories.CHEAP_HASHER)
    monkeypatch.setattr(user, "DUMMY_PASSWORD_HASH", factories.password_hash())


@pytest.fixture
def client(app: Flask) -> Browser:
    """A browser that is not signed in."""
    return browser_of(app)


@pytest.fixture
def signed_in(app: Flask) -> SignedIn:
    """Sign a person in."""
    return partial(signed_in_browser, app)


@pytest.fixture
def admin(app: Flask) -> User:
    return person(account=factories.account(name="Own account", slug="own"))


@pytest.fixture
def account(admin: User) -> Account:
    return admin.account


@pytest.fixture
def dashboard(admin: User, signed_in: SignedIn) -> Browser:
    """A browser in which the admin of an account is signed in."""
    return signed_in(admin)


@pytest.fixture
def site_admins(signed_in: SignedIn) -> Browser:
    """A browser in which a site admin of another account is signed in."""
    return signed_in(person(site_admin=True))


@pytest.fixture
def ticking(app: Flask, redis: Redis) -> None:
    """A clock that has just ticked, and a queue without anything in it."""
    PeriodicWork.note("tick", clock.now())
    db.session.commit()


@pytest.fixture
def cut_off(dashboard: Browser, with_settings: WithSettings) -> Browser:
    """The admin's browser, where no database can be reached."""
    away = with_settings(DATABASE_URL=f"postgresql://canary:x@127.0.0.1:{UNUSED_PORT}/x")
    browser, cookie = browser_of(away), dashboard.get_cookie("session")
    assert cookie is not None
    browser.set_cookie("session", cookie.value)
    return browser


@pytest.fixture
def with_settings(app: Flask, environ: dict[str, str]) -> Iterator[WithSettings]:
    """Make the same application with other settings."""
    made: list[Flask] = []

    def with_settings(**variables: str) -> Flask:
        made.append(create_app(Settings.from_environ({**environ, **variables})))
        return made[-1]

    yield with_settings
    for application in made:
        with application.app_context():
            db.engine.dispose()


@dataclass
class World:
    """An account with one of everything, and people in and outside it."""

    viewer: User
    stranger: User
    admin: User
    site_admin: User
    agent: Agent
    memories: list[AgentMemory]
    discarded: AgentMemory
    ended: RefinementSession
    live: RefinementSession
    token: ApiToken
    invited: User
    invitation: str
    record: AuditLog
    grant: AccessGrant
    delivery: Delivery

    @property
    def account(self) -> Account:
        return self.admin.account


@pytest.fixture
def world(admin: User) -> World:
    return world_of(admin)


def world_of(admin: User) -> World:
    """Give the account of this admin one of everything."""
    account = admin.account
    agent = factories.agent(account=account, name="Ada", model_id="test/ada")
    memories = factories.ledger(agent, *[25] * 8)
    discarded = factories.memory(agent)
    discarded.discard(user=admin)
    factories.endpoint(account)
    ended = ended_session(agent, memories.pop())
    other = factories.agent(*["one", "two"], account=account, model_id="test/other")
    live = RefinementSession.queue(other, "manual", user=admin)
    token, _ = ApiToken.mint(account=account)
    invited = User.invite(account, "invited@example.org", role="viewer", by=admin)
    site_admin = person(site_admin=True)
    made = World(
        viewer=person(account=account, role="viewer"),
        stranger=person(),
        admin=admin,
        site_admin=site_admin,
        agent=agent,
        memories=memories,
        discarded=discarded,
        ended=ended,
        live=live,
        token=token,
        invited=invited,
        invitation=Invitation.issue(invited),
        record=factories.records(agent)[-1],
        grant=factories.live_grant(other, site_admin),
        delivery=db.session.scalars(db.select(Delivery)).first(),
    )
    db.session.commit()
    return made


def browser_of(app: Flask) -> Browser:
    return Browser(app, app.response_class)


def signed_in_browser(app: Flask, who: User) -> Browser:
    """A browser with the cookie that the form of sign-in would leave; three requests fewer."""
    begun = SignIn.begin(who)
    who.record("user_signed_in", by=who)
    db.session.commit()
    return browser_with(app, begun.secret)


def browser_with(app: Flask, secret: str) -> Browser:
    """A browser with the cookie of the sign-in that has this secret."""
    browser = browser_of(app)
    with browser.session_transaction() as cookie:
        cookie.update({"_user_id": secret, "_fresh": True, "csrf_token": "of a test"})
    assert app.secret_key is not None
    browser.csrf_token = URLSafeTimedSerializer(app.secret_key, "wtf-csrf-token").dumps("of a test")
    return browser


def ended_session(agent: Agent, *deleted: AgentMemory, summary: str = "done") -> RefinementSession:
    """A completed session in which these memories were deleted."""
    session = factories.session(agent)
    tool = RefinementTool(session)
    for memory in deleted:
        assert tool.execute(action="delete", id=memory.id)["type"] == "deleted"
    assert tool.execute(action="complete", summary=summary)["type"] == "refinement_complete"
    db.session.refresh(session)
    return session


def records(action: str) -> list[AuditLog]:
    """All records of an action, as committed, oldest first."""
    db.session.rollback()
    wanted = db.select(AuditLog).where(AuditLog.action == action).order_by(AuditLog.id)
    return list(db.session.scalars(wanted))


def said(browser: Browser, path: str) -> str:
    """The text of the page at this path."""
    answer = browser.get(path)
    assert answer.status_code == 200
    return words_of(answer.text)


def links_of(page: str) -> list[str]:
    """The links of a page, without static files."""
    found = [unescape(link) for link in _LINK.findall(page)]
    return [link for link in found if link.startswith("/") and not link.startswith("/static/")]


def actions_of(page: str) -> list[str]:
    """The targets of a page's forms, without signing out."""
    return [action for action in map(unescape, _FORM.findall(page)) if action != "/sign-out"]


def words_of(page: str) -> str:
    """The text of a page, without mark-up."""
    main = page.partition('class="messages"')[2] or page
    without = re.sub(r"<(script|style|option|title)\b.*?</\1>", " ", main, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", f"<{without}")).split())
