"""Which faults of the database pass by themselves, and when a transaction is retried."""

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from refine import outages
from refine.extensions import db
from refine.outages import RetryPolicy, commit_once, may_pass
from tests.commands import UNUSED_PORT

FOREVER = RetryPolicy()


def fault_of(sqlstate: str) -> DBAPIError:
    with pytest.raises(DBAPIError) as raised:
        db.session.execute(text(f"DO $$ BEGIN RAISE SQLSTATE '{sqlstate}'; END $$"))
    db.session.rollback()
    return raised.value


def test_only_faults_of_a_server_that_is_away_busy_or_full_may_pass(app):
    for sqlstate in ("57P01", "08006", "53300", "40P01", "55P03", "53100"):
        assert may_pass(fault_of(sqlstate)), sqlstate
    for sqlstate in ("23505", "42P01", "P0001", "XX000"):
        assert not may_pass(fault_of(sqlstate)), sqlstate
    assert not may_pass(LookupError())


def test_a_server_that_nobody_reaches_may_come_back():
    engine = create_engine(f"postgresql+psycopg://nobody@127.0.0.1:{UNUSED_PORT}/none")
    with pytest.raises(DBAPIError) as raised:
        engine.connect()

    assert may_pass(raised.value)


def test_work_is_repeated_on_another_connection(app):
    tried: list[int] = []

    def work() -> int:
        pid = db.session.scalars(text("SELECT pg_backend_pid()")).one()
        tried.append(pid)
        if len(tried) == 1:
            db.session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return int(pid)

    done = commit_once(work, FOREVER)

    assert done == tried[1] != tried[0]


@pytest.mark.parametrize(("sqlstate", "patience"), [("22012", FOREVER), ("40P01", None)])
def test_a_fault_that_stays_is_raised_at_once_and_any_fault_without_patience(
    app, sqlstate, patience
):
    tried: list[int] = []

    def work() -> None:
        tried.append(1)
        db.session.execute(text(f"DO $$ BEGIN RAISE SQLSTATE '{sqlstate}'; END $$"))

    with pytest.raises(DBAPIError):
        commit_once(work, *filter(None, [patience]))

    assert len(tried) == 1
    assert not db.session().in_transaction()


def test_patience_is_short_once_the_process_is_stopping(monkeypatch):
    monkeypatch.setattr(outages, "STOPPING_SECONDS", 0.0)

    assert not RetryPolicy(is_stopping=lambda: True).wait()
