"""How the transaction of a request ends."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient
from sqlalchemy import event

from refine.extensions import db
from refine.models import Account, SignIn, User
from tests import factories
from tests.web.conftest import Browser


@contextmanager
def ends() -> Iterator[list[str]]:
    """How each transaction ends meanwhile."""
    noted: list[str] = []
    listeners = {name: lambda *_, name=name: noted.append(name) for name in ("commit", "rollback")}
    for name, listener in listeners.items():
        event.listen(db.engine, name, listener)
    yield noted
    for name, listener in listeners.items():
        event.remove(db.engine, name, listener)


def test_a_page_ends_with_a_commit_which_keeps_what_was_prepared(dashboard: Browser) -> None:
    dashboard.get("/agents")  # the schema's version is looked at on a connection of its own, once

    with ends() as noted:
        dashboard.get("/agents")

    assert noted == ["commit"]


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("GET", 400), ("POST", 200)])
def test_uncommitted_changes_are_never_stored(app: Flask, method: str, status: int) -> None:
    account = factories.account()
    db.session.commit()

    with app.test_request_context(method=method):
        db.session.get_one(Account, account.id).name = "changed"
        app.process_response(Response(status=status))

    db.session.expire_all()
    assert account.name != "changed"


# -- who holds an application context, as Flask's own test client finds it -------------------------


def client_of(app: Flask, who: User) -> FlaskClient:
    """A client of Flask itself, signed in: its requests share the context that the test holds."""
    client = app.test_client()
    secret = SignIn.begin(who).secret
    db.session.commit()
    with client.session_transaction() as cookie:
        cookie.update({"_user_id": secret, "_fresh": True})
    return client


def test_objects_stay_attached_after_a_page_was_read(app: Flask) -> None:
    memory = factories.memory(factories.agent())
    client = client_of(app, factories.user(account=memory.agent.account))

    assert client.get(f"/agents/{memory.agent_id}").status_code == 200

    db.session.refresh(memory)
    memory.discard()
    assert memory.discarded


def test_nobody_is_signed_in_as_whoever_asked_before(app: Flask) -> None:
    first, second = factories.user(), factories.user()

    pages = [client_of(app, who).get("/profile").text for who in (first, second)]
    nobody = app.test_client().get("/profile")

    assert first.email in pages[0]
    assert first.email not in pages[1]
    assert second.email in pages[1]
    assert nobody.status_code == 303


def test_an_access_that_was_granted_since_shows_the_memories(app: Flask) -> None:
    agent = factories.agent("it likes trains")
    reader = factories.user(account=agent.account)
    client, ledger = client_of(app, reader), f"/agents/{agent.id}/ledger"

    before = client.get(ledger).text
    factories.live_grant(agent, reader)
    db.session.commit()
    after = client.get(ledger).text

    assert "it likes trains" not in before
    assert "it likes trains" in after
