"""How the transaction of a request ends."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from flask import Flask, Response
from sqlalchemy import event

from refine.extensions import db
from refine.models import Account
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
    with ends() as noted:
        dashboard.get("/agents")

    assert noted == ["commit"]


def test_a_page_that_does_not_exist_ends_with_a_rollback(dashboard: Browser) -> None:
    with ends() as noted:
        dashboard.get("/agents/0")

    assert noted[-1] == "rollback"


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("GET", 400), ("POST", 200)])
def test_uncommitted_changes_are_never_stored(app: Flask, method: str, status: int) -> None:
    account = factories.account()
    db.session.commit()

    with app.test_request_context(method=method):
        db.session.get_one(Account, account.id).name = "changed"
        app.process_response(Response(status=status))

    db.session.expire_all()
    assert account.name != "changed"
