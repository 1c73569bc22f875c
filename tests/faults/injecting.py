"""Faults at the n-th call of a database, of Redis or of a model's server, in this very process.

Each *door* counts the calls that pass through it; a *kind* of fault says at which door it strikes,
and how. The faults are as real as they can be had: PostgreSQL itself raises its errors, connections
are cut on the socket, and an answer is lost after the server did what it was asked.
"""

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import psycopg
import pytest
import redis
from flask import Flask
from psycopg import sql
from sqlalchemy import event

from refine.extensions import db
from tests.providers.faults import FAULTS
from tests.scripted_model import ScriptedModel
from tests.sql import run, value

Strike = Callable[..., object]

STATEMENT, COMMIT, ANSWER, RECORD, REDIS, REDIS_ANSWER, HTTP = (
    *("statement", "commit", "answer to a commit", "audit record"),
    *("Redis call", "answer of Redis", "HTTP call"),
)


@dataclass(frozen=True)
class Kind:
    """A kind of fault: at which door, how it strikes, and whether it lasts from there on.

    ``excuse`` is the kind of error with which it may end a run; None: with none.
    """

    name: str
    door: str
    strike: Any = field(repr=False)
    lasts: bool = False
    excuse: str | None = None


@dataclass
class Plan:
    """The fault that strikes next; without one, calls are counted alone."""

    kind: Kind | None = None
    at: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    has_struck: bool = False

    def strikes(self, door: str) -> bool:
        """Count a call at this door; tell whether the fault strikes it."""
        number = self.passed[door]
        self.passed[door] += 1
        if self.kind is None or self.kind.door != door:
            return False
        is_hit = number == self.at or (self.kind.lasts and number > self.at)
        self.has_struck |= is_hit
        return is_hit

    def strike(self, struck: Any) -> None:
        assert self.kind is not None
        self.kind.strike(struck)


class _Now:
    """The plan that holds now, and for which thread: heartbeats have one of their own."""

    plan = Plan()
    thread = 0


def _plan() -> Plan:
    return _Now.plan if threading.get_ident() == _Now.thread else Plan()


# -- the database ---------------------------------------------------------------------------------


def raised(state: str) -> Strike:
    """Have PostgreSQL raise this SQLSTATE, which ends the transaction."""

    def strike(connection: psycopg.Connection[Any]) -> None:
        raising = sql.SQL("DO $$ BEGIN RAISE 'injected' USING ERRCODE = {}; END $$")
        psycopg.Cursor(connection).execute(raising.format(sql.Literal(state)))

    return strike


def at_commit(strike: Strike) -> Strike:
    """Let a commit fail so: a server that refuses one has ended the transaction."""

    def strike_and_end(connection: psycopg.Connection[Any]) -> None:
        try:
            strike(connection)
        finally:
            connection.rollback()

    return strike_and_end


def cut(connection: psycopg.Connection[Any]) -> None:
    """Cut the connection: what is asked next fails, and the server ends the transaction."""
    with socket.socket(fileno=connection.fileno()) as line:
        line.shutdown(socket.SHUT_RDWR)
        line.detach()


def ended(connection: psycopg.Connection[Any]) -> None:
    """Let the server end the connection, as it does when it is shut down."""
    psycopg.Cursor(connection).execute("SELECT pg_terminate_backend(pg_backend_pid())")


DATABASE = (
    Kind("the connection is cut", STATEMENT, cut),
    Kind("the server ends the connection", STATEMENT, ended),
    Kind("the transaction lost a race", STATEMENT, raised("40001")),
    Kind("two transactions wait for each other", STATEMENT, raised("40P01")),
    Kind("a lock is not to be had", STATEMENT, raised("55P03")),
    Kind("the statement takes too long", STATEMENT, raised("57014")),
    Kind("the disk is full", STATEMENT, raised("53100")),
    Kind("the connection is cut before the commit", COMMIT, cut),
    Kind("the disk is full at the commit", COMMIT, at_commit(raised("53100"))),
    Kind("the answer to the commit is lost", ANSWER, cut),
    Kind("no audit record can be added", RECORD, None),
)


def _counting(cursor: type[Any]) -> type[Any]:
    """A kind of cursor that passes the door with each statement."""

    def passing(name: str) -> Callable[..., Any]:
        def passed(self: Any, query: Any, *args: Any, **options: Any) -> Any:
            plan = _plan()
            if query != "SELECT 1" and plan.strikes(STATEMENT):  # no ping
                plan.strike(self.connection)
            return getattr(cursor, name)(self, query, *args, **options)

        return passed

    return type(cursor.__name__, (cursor,), {name: passing(name) for name in _STATEMENTS})


_STATEMENTS = ("execute", "executemany", "copy")
_CURSOR, _SERVER_CURSOR = _counting(psycopg.Cursor), _counting(psycopg.ServerCursor)


def _use_cursors(connection: Any, *_: Any) -> None:
    connection.cursor_factory, connection.server_cursor_factory = _CURSOR, _SERVER_CURSOR


def _at_commits(commit: Callable[[Any], None]) -> Callable[[Any], None]:
    def committed(connection: Any) -> None:
        driver = connection.dbapi_connection
        plan = _plan()
        if plan.strikes(COMMIT):
            plan.strike(driver)
        commit(connection)
        if plan.strikes(ANSWER):
            cut(driver)
            driver.execute("SELECT 2")  # finds that nobody is there, as the commit would have

    return committed


# The n-th row of the audit log is refused in the middle of its statement, whatever adds it.
_REFUSING = """
CREATE SEQUENCE faults_records MINVALUE 0 START 0;
CREATE TABLE faults_refused AS SELECT -1 AS number;
CREATE FUNCTION faults_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE nth bigint := nextval('faults_records');
BEGIN
  IF EXISTS (SELECT FROM faults_refused WHERE number = nth) THEN
    RAISE 'injected' USING ERRCODE = '53100';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER faults_refuse BEFORE INSERT ON audit_logs
FOR EACH ROW EXECUTE FUNCTION faults_refuse()
"""
_NOT_REFUSING = """
DROP TRIGGER faults_refuse ON audit_logs; DROP FUNCTION faults_refuse;
DROP TABLE faults_refused; DROP SEQUENCE faults_records
"""


def _begin_records(refused: int) -> None:
    run(
        "SELECT setval('faults_records', 0, false)",
        f"UPDATE faults_refused SET number = {refused}",
    )


# -- Redis ----------------------------------------------------------------------------------------


def _at_send(send: Callable[..., Any]) -> Callable[..., Any]:
    def sent(self: Any, *args: Any, **options: Any) -> Any:
        if _plan().strikes(REDIS):
            self.disconnect()
            raise redis.exceptions.ConnectionError("injected")
        return send(self, *args, **options)

    return sent


def _at_answers(read: Callable[..., Any]) -> Callable[..., Any]:
    def answered(self: Any, *args: Any, **options: Any) -> Any:
        answer = read(self, *args, **options)
        if _plan().strikes(REDIS_ANSWER):
            self.disconnect()
            raise redis.exceptions.TimeoutError("injected")
        return answer

    return answered


REDIS_KINDS = (
    Kind("a call of Redis fails", REDIS, None),
    Kind("Redis is gone from there on", REDIS, None, lasts=True),
    Kind("an answer of Redis is lost", REDIS_ANSWER, None),
    Kind("no answer of Redis comes from there on", REDIS_ANSWER, None, lasts=True),
)


# -- the model's server ---------------------------------------------------------------------------


class FaultyModel(ScriptedModel):
    """A scripted model whose server fails as planned, before it looks at its script."""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        class Handler(super()._handler()):  # type: ignore[misc]
            def do_POST(self) -> None:
                _answer(self, super().do_POST)

            def do_GET(self) -> None:
                _answer(self, super().do_GET)

        return Handler


def _answer(handler: BaseHTTPRequestHandler, else_: Callable[[], None]) -> None:
    plan = _Now.plan
    if not plan.strikes(HTTP):
        return else_()
    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    plan.strike(handler)
    return None


def _http_kinds() -> Iterator[Kind]:
    for fault in FAULTS.values():
        waits_for_the_limit = fault.endless and fault.kind == "timeout"
        if fault.kind is None or waits_for_the_limit:
            continue
        name = f"the model's server: {fault.name}"
        yield Kind(name, HTTP, fault.play, excuse=None if fault.is_retried else fault.kind)
        yield Kind(f"{name}, from there on", HTTP, fault.play, lasts=True, excuse=fault.kind)


HTTP_KINDS = tuple(_http_kinds())


@contextmanager
def doors(app: Flask) -> Iterator[None]:
    """Let all calls of this thread pass the doors, until the block ends."""
    with app.app_context():
        engine = db.engine
    _Now.thread, _Now.plan = threading.get_ident(), Plan()
    engine.dispose()
    event.listen(engine, "connect", _use_cursors)
    run(_REFUSING)
    connection = redis.connection.AbstractConnection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.dialect, "do_commit", _at_commits(engine.dialect.do_commit))
        patch.setattr(connection, "send_packed_command", _at_send(connection.send_packed_command))
        patch.setattr(connection, "read_response", _at_answers(connection.read_response))
        try:
            yield
        finally:
            event.remove(engine, "connect", _use_cursors)
            engine.dispose()
    run(_NOT_REFUSING)


@contextmanager
def planned(kind: Kind | None = None, at: int = 0) -> Iterator[Plan]:
    """Let the ``at``-th call at its door fail, counted from 0; without a kind, count alone."""
    is_of_record = kind is not None and kind.door == RECORD
    _begin_records(refused=at if is_of_record else -1)
    plan = _Now.plan = Plan(kind, at)
    try:
        yield plan
    finally:
        _Now.plan = Plan()
        plan.passed[RECORD] = int(value("SELECT last_value + is_called::int FROM faults_records"))
        plan.has_struck |= is_of_record and plan.passed[RECORD] > at
        _begin_records(refused=-1)
