"""Programs with tokens: two accounts, each with agents and a platform."""

import contextvars
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from types import FrameType
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from refine.extensions import db
from refine.models import Account, Agent, ApiToken
from tests import factories, sql


class Program(FlaskClient):
    """Sends its token, in a context of its own as another process would."""

    secret: str | None = None

    def open(self, *args: Any, **options: Any) -> TestResponse:
        headers = dict(options.pop("headers", None) or {})
        if self.secret is not None:
            headers.setdefault("Authorization", f"Bearer {self.secret}")
        path = f"/api/v1{args[0]}"
        opened = super().open
        return contextvars.Context().run(
            opened, path, *args[1:], **{"buffered": True, "headers": headers, **options}
        )


def bearing(app: Flask, secret: str | None) -> Program:
    program = Program(app, app.response_class, use_cookies=False)
    program.secret = secret
    return program


def program_of(app: Flask, agent: Agent, **fields: Any) -> Program:
    """The program of an agent, with a new token."""
    _, secret = ApiToken.mint(account=agent.account, agent=agent, **fields)
    db.session.commit()
    return bearing(app, secret)


def platform_of(app: Flask, account: Account) -> Program:
    """The program of an account's platform, with a new token."""
    _, secret = ApiToken.mint(account=account)
    db.session.commit()
    return bearing(app, secret)


def token_of(program: Program) -> ApiToken:
    """The row of its token, as committed."""
    db.session.rollback()
    assert program.secret is not None
    return ApiToken.of_secret(program.secret)


@contextmanager
def files_called() -> Iterator[set[str]]:
    """Yield the files of the functions that are called meanwhile, here and in threads begun."""
    files: set[str] = set()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def refusing_memories(sqlstate: str, message: str = "no") -> Iterator[None]:
    """Have the database refuse every new memory, with a message and detail of its own."""
    db.session.commit()
    refusal = f"RAISE '{message}' USING ERRCODE = '{sqlstate}', DETAIL = '{message}'"
    with sql.trigger("BEFORE INSERT ON agent_memories", refusal):
        yield


class World:
    """An account with an agent and its platform, another agent beside it, and strangers.

    A program gets its token when a test first mentions it.
    """

    def __init__(self, app: Flask) -> None:
        self._app = app
        self.agent: Agent = factories.agent("the first memory", "the second memory", name="Ada")
        self._sibling = factories.agent("of a sibling", account=self.account)
        self._stranger = factories.agent("of a stranger")
        self.own = program_of(app, self.agent)

    @property
    def account(self) -> Account:
        return self.agent.account

    @cached_property
    def sibling(self) -> Program:
        return program_of(self._app, self._sibling)

    @cached_property
    def platform(self) -> Program:
        return platform_of(self._app, self.account)

    @cached_property
    def stranger(self) -> Program:
        return program_of(self._app, self._stranger)

    @cached_property
    def foreign_platform(self) -> Program:
        return platform_of(self._app, self._stranger.account)

    @cached_property
    def nobody(self) -> Program:
        return bearing(self._app, None)


@pytest.fixture
def world(app: Flask) -> World:
    return World(app)


def refreshed(agent: Agent) -> Agent:
    """The agent as committed."""
    db.session.rollback()
    db.session.refresh(agent)
    return agent
