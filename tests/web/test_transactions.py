"""How the transaction of a request ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient
from sqlalchemy import Connection, event
from sqlalchemy.orm import Session

from refine.extensions import db
from refine.models import Account, SignIn, User, schema_version
from tests import factories


@contextmanager
def ends() -> Iterator[list[str]]:
    """How each transaction of a session ends meanwhile.

    Not those of other connections: the schema's version is looked at on one, every ten seconds.
    """
    noted: list[str] = []
    of_sessions: list[Connection] = []

    def begin(_session: Session, _transaction: object, connection: Connection) -> None:
        of_sessions.append(connection)

    def end(name: str, connection: Connection) -> None:
        if any(connection is each for each in of_sessions):
            noted.append(name)

    listeners: list[tuple[Any, str, Callable[..., None]]] = [
        *((db.engine, name, partial(end, name)) for name in ("commit", "rollback")),
        (db.session, "after_begin", begin),
    ]
    for target, name, listener in listeners:
        event.listen(target, name, listener)
    yield noted
    for target, name, listener in listeners:
        event.remove(target, name, listener)


def test_a_page_ends_with_a_commit_and_keeps_prepared_statements(app, dashboard):
    schema_version.forget()

    with ends() as noted:
        dashboard.get("/agents")

    assert noted == ["commit"]


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("GET", 400), ("POST", 200)])
def test_uncommitted_changes_are_never_stored(app, method, status):
    account = factories.account()
    db.session.commit()

    with app.test_request_context(method=method):
        app.preprocess_request()
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


def test_objects_stay_attached_after_a_page_was_read(app):
    memory = factories.memory(factories.agent())
    client = client_of(app, factories.user(account=memory.agent.account))

    assert client.get(f"/agents/{memory.agent_id}").status_code == 200

    db.session.refresh(memory)
    memory.discard()
    assert memory.discarded


def test_nobody_is_signed_in_as_whoever_asked_before(app):
    first, second = factories.user(), factories.user()

    pages = [client_of(app, who).get("/profile").text for who in (first, second)]
    nobody = app.test_client().get("/profile")

    assert first.email in pages[0]
    assert first.email not in pages[1]
    assert second.email in pages[1]
    assert nobody.status_code == 303


def test_an_access_that_was_granted_since_shows_the_memories(app):
    agent = factories.agent("it likes trains")
    reader = factories.user(account=agent.account)
    client, ledger = client_of(app, reader), f"/agents/{agent.id}/ledger"

    before = client.get(ledger).text
    factories.live_grant(agent, reader)
    db.session.commit()
    after = client.get(ledger).text

    assert "it likes trains" not in before
    assert "it likes trains" in after
