"""Which faults of the database pass by themselves, and when a transaction is tried again."""

import pytest
from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from refine import outages
from refine.extensions import db
from refine.outages import Patience, commit_once, is_away, may_pass
from tests.commands import UNUSED_PORT

FOREVER = Patience()


def fault_of(sqlstate: str) -> DBAPIError:
    with pytest.raises(DBAPIError) as raised:
        db.session.execute(text(f"DO $$ BEGIN RAISE SQLSTATE '{sqlstate}'; END $$"))
    db.session.rollback()
    return raised.value


@pytest.mark.parametrize("sqlstate", ["57P01", "57P02", "57P03", "53300", "08006"])
def test_a_server_that_stops_or_starts_is_away(app: Flask, sqlstate: str) -> None:
    assert is_away(fault_of(sqlstate))
    assert may_pass(fault_of(sqlstate))


@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "55P03", "53100", "53200"])
def test_a_busy_or_full_server_is_not_away_but_that_may_pass(app: Flask, sqlstate: str) -> None:
    assert not is_away(fault_of(sqlstate))
    assert may_pass(fault_of(sqlstate))


@pytest.mark.parametrize("sqlstate", ["23505", "42P01", "57014", "P0001", "XX000"])
def test_any_other_fault_does_not_pass(app: Flask, sqlstate: str) -> None:
    assert not may_pass(fault_of(sqlstate))


def test_a_fault_of_ours_does_not_pass() -> None:
    assert not may_pass(LookupError())


def test_a_server_that_nobody_reaches_is_away() -> None:
    engine = create_engine(f"postgresql+psycopg://nobody@127.0.0.1:{UNUSED_PORT}/none")
    with pytest.raises(DBAPIError) as raised:
        engine.connect()

    assert is_away(raised.value)


def test_a_connection_that_was_ended_is_away_and_the_work_is_done_on_another(app: Flask) -> None:
    tried: list[int] = []

    def work() -> int:
        pid = db.session.scalars(text("SELECT pg_backend_pid()")).one()
        tried.append(pid)
        if len(tried) == 1:
            db.session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return int(pid)

    done = commit_once(work, FOREVER)

    assert done == tried[1] != tried[0]


def test_work_that_failed_otherwise_is_not_repeated(app: Flask) -> None:
    tried: list[int] = []

    def work() -> None:
        tried.append(1)
        db.session.execute(text("SELECT 1 / 0"))

    with pytest.raises(DBAPIError, match="SQLSTATE 22012"):
        commit_once(work, FOREVER)

    assert len(tried) == 1
    assert not db.session().in_transaction()


def test_without_patience_a_fault_that_passes_is_raised_at_once(app: Flask) -> None:
    tried: list[int] = []

    def work() -> None:
        tried.append(1)
        db.session.execute(text("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$"))

    with pytest.raises(DBAPIError):
        commit_once(work)

    assert len(tried) == 1


def test_patience_is_short_once_the_process_is_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "STOPPING_SECONDS", 0.0)

    assert not Patience(is_stopping=lambda: True).is_left()
