"""Connections are bounded and replaced, and their errors reach nobody with row contents."""

import traceback
from collections.abc import Iterator
from datetime import datetime

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError

from refine import create_app
from refine.extensions import db
from refine.settings import Settings
from tests import factories
from tests.extensions.errors import everything_about

CANARY = "c4n4ry"


TRIGGER = """
CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'this is refused' USING ERRCODE = '{}', DETAIL = NEW.name, HINT = NEW.name;
END $$;
CREATE TRIGGER complain BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION complain();
"""


def failing(statement: str, **values: object) -> DBAPIError:
    with pytest.raises(DBAPIError) as raised:
        db.session.execute(text(statement), values)
    db.session.rollback()
    return raised.value


@pytest.fixture
def account(app):
    account = factories.account(name=f"{CANARY} & sons", slug=CANARY)
    db.session.commit()
    return account


@pytest.mark.parametrize(
    ("statement", "sqlstate", "kind"),
    [
        ("INSERT INTO accounts (name, slug) VALUES (:canary, :canary)", "23505", IntegrityError),
        ("INSERT INTO accounts (name, slug) VALUES (:canary, 'A B')", "23514", IntegrityError),
        ("UPDATE accounts SET name = NULL", "23502", IntegrityError),
        ("SELECT CAST(:canary AS integer)", "22P02", DataError),
        ("SELECT CAST(:canary AS timestamptz)", "22007", DataError),
        ("SELECT CAST(name AS integer) FROM accounts WHERE slug = :canary", "22P02", DataError),
        ("SELECT * FROM nowhere WHERE name = :canary", "42P01", ProgrammingError),
    ],
)
def test_a_database_error_quotes_no_row(account, statement, sqlstate, kind):
    error = failing(statement, canary=CANARY)

    assert isinstance(error, kind)
    assert error.orig.sqlstate == sqlstate
    assert error.__cause__ is error.orig
    assert CANARY not in everything_about(error)


@pytest.mark.parametrize("sqlstate", ["P0001", "23001", "22999", "RF001"])
def test_an_error_of_a_trigger_says_its_message_without_detail_and_hint(account, sqlstate):
    db.session.execute(text(TRIGGER.format(sqlstate)))

    error = failing("INSERT INTO accounts (name, slug) VALUES (:canary, 'x')", canary=CANARY)

    assert error.orig.sqlstate == sqlstate
    assert CANARY not in everything_about(error)
    assert ("this is refused" in str(error)) == (sqlstate != "22999")


def test_a_value_that_cannot_be_bound_is_not_quoted(app):
    with pytest.raises(StatementError) as raised:
        db.session.execute(
            factories.Account.__table__.insert(),
            {"name": CANARY, "slug": "x", "next_due_at": datetime(2026, 1, 1)},  # noqa: DTZ001
        )

    assert CANARY not in "".join(traceback.format_exception(raised.value))


def test_the_error_of_a_broken_connection_is_kept(app):
    pid = db.session.scalar(text("SELECT pg_backend_pid()"))
    with db.engine.connect() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

    error = failing("SELECT 1")

    assert error.connection_invalidated


def test_a_connection_that_breaks_after_the_work_takes_nothing_from_the_answer(app, environ):
    own = create_app(Settings.from_environ(environ))

    @own.post("/work")
    def work() -> str:
        pid = db.session.scalar(select(func.pg_backend_pid()))
        with db.engine.connect() as other:
            other.execute(select(func.pg_terminate_backend(pid, 10_000)))
        return "done"

    assert own.test_client().post("/work").text == "done"
    with own.app_context():
        db.engine.dispose()


def test_nobody_waits_for_ever(app):
    waits = db.session.scalar(text("SHOW lock_timeout"))
    idles = db.session.scalar(text("SHOW idle_in_transaction_session_timeout"))

    assert (waits, idles) == ("20s", "1min")


@pytest.fixture
def own_pool(environ: dict[str, str]) -> Iterator[None]:
    with create_app(Settings.from_environ(environ)).app_context():
        yield
        db.session.rollback()
        db.engine.dispose()


def backend() -> int:
    pid = db.session.scalar(select(func.pg_backend_pid()))
    db.session.commit()
    return int(pid or 0)


@pytest.mark.usefixtures("own_pool")
def test_a_connection_that_the_server_has_ended_is_replaced():
    with db.engine.connect() as other:
        first = backend()
        other.execute(select(func.pg_terminate_backend(first, 10_000)))

        assert backend() != first


LIMITS = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"


@pytest.mark.parametrize(("is_pooled", "remaining"), [(False, "20s"), (True, "0")])
def test_waiting_is_bounded_and_a_pooler_gets_its_connection_back_as_it_was(
    environ, is_pooled, remaining
):
    other = create_app(Settings.from_environ({**environ, "REFINE_POOLED": str(int(is_pooled))}))

    with other.app_context():
        with db.engine.connect() as connection:
            for _ in range(10):  # more often than psycopg executes a statement before it prepares
                within = connection.execute(text(LIMITS)).one()
                connection.commit()
            driver = connection.connection.driver_connection
            assert driver is not None
            after = driver.execute(LIMITS).fetchone()
            prepared = driver.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        db.engine.dispose()

    assert within == ("20s", "0")
    assert after == (remaining, "0")
    assert (prepared == (0,)) is is_pooled
