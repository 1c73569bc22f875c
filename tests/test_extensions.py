"""Database errors reach callers and logs without row contents."""

import traceback
from datetime import UTC, datetime, timedelta, timezone

import pytest
from flask import Flask
from sqlalchemy import Integer, Text, bindparam, cast, func, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError

from refine import create_app
from refine.extensions import Plain, Reading, canonical_json, db
from refine.models import Account
from refine.settings import Settings
from tests import factories

CANARY = "c4n4ry"

TRIGGER = """
CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'this is refused' USING ERRCODE = '{}', DETAIL = NEW.name, HINT = NEW.name;
END $$;
CREATE TRIGGER complain BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION complain();
"""


def everything_about(error: BaseException) -> str:
    """All that a log, a report or a debugger would show of an error."""
    shown = ["".join(traceback.format_exception(error))]
    while error is not None:
        orig = getattr(error, "orig", None)
        for each in filter(None, (error, orig)):
            diagnosis = getattr(each, "diag", None)
            fields = [name for name in dir(diagnosis) if not name.startswith("__")]
            shown += [str(each), repr(each), repr(each.args), repr(vars(each))]
            shown += [str(getattr(diagnosis, name)) for name in fields]
        shown.append(repr(getattr(error, "params", None)))
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


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
        ("INSERT INTO accounts (slug) VALUES (:canary)", "23502", IntegrityError),
        ("UPDATE accounts SET name = NULL", "23502", IntegrityError),
        (
            """INSERT INTO agents (account_id, data_key_id, name, model_id)
               VALUES (1, 1, :canary, 'm')""",
            "23503",
            IntegrityError,
        ),
        ("SELECT CAST(:canary AS integer)", "22P02", DataError),
        ("SELECT CAST(:canary AS timestamptz)", "22007", DataError),
        ("SELECT CAST('{' || :canary AS json)", "22P02", DataError),
        ("SELECT CAST(name AS integer) FROM accounts WHERE slug = :canary", "22P02", DataError),
        ("SELECT convert_from(decode(:canary || 'f', 'hex'), 'UTF8')", "22023", DataError),
        ("SELECT * FROM nowhere WHERE name = :canary", "42P01", ProgrammingError),
    ],
)
def test_a_database_error_quotes_nothing_of_the_row(account, statement, sqlstate, kind):
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


def test_an_error_of_a_flush_quotes_nothing_either(account):
    with pytest.raises(IntegrityError) as raised:
        factories.account(name=CANARY, slug=CANARY)

    assert raised.value.orig.sqlstate == "23505"
    assert CANARY not in everything_about(raised.value)


def test_the_message_says_which_constraint_was_violated(account):
    error = failing("INSERT INTO accounts (name, slug) VALUES ('x', :canary)", canary=CANARY)

    assert "uq_accounts_slug" in str(error)
    assert str(error).startswith("(UniqueViolation) ")


def test_a_data_exception_says_its_code(app):
    error = failing("SELECT CAST(:canary AS integer)", canary=CANARY)

    assert "a value does not fit its column (SQLSTATE 22P02)" in str(error)


def test_a_value_that_cannot_be_bound_is_not_quoted(app):
    with pytest.raises(StatementError) as raised:
        db.session.execute(
            factories.Account.__table__.insert(),
            {"name": CANARY, "slug": "x", "next_due_at": datetime(2026, 1, 1)},  # noqa: DTZ001
        )

    assert CANARY not in "".join(traceback.format_exception(raised.value))


def test_a_broken_connection_stays_what_it_is(app):
    pid = db.session.scalar(text("SELECT pg_backend_pid()"))
    with db.engine.connect() as other:
        other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

    error = failing("SELECT 1")

    assert error.connection_invalidated


def test_a_connection_that_breaks_after_the_work_takes_nothing_from_the_answer(
    app: Flask, environ: dict[str, str]
) -> None:
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


def test_times_come_back_in_utc(app):
    local = datetime(2026, 3, 4, 12, tzinfo=timezone(timedelta(hours=5)))
    account = factories.account(next_due_at=local)
    db.session.commit()

    assert account.next_due_at == local
    assert account.next_due_at.tzinfo is UTC


def test_json_has_one_spelling():
    spelled = canonical_json({"b": [1, None, True], "a": "é\u2028"})

    assert spelled == '{"a":"é\u2028","b":[1,null,true]}'


def test_a_plain_statement_is_prepared_at_once_and_its_errors_tell_no_value(app: Flask) -> None:
    number = cast(bindparam("of", type_=Text), Integer)
    plain = Plain(select(number.label("plain_number")))
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%plain_number%'"

    found = plain.execute({"of": "7"})

    assert found == [(7,)]
    assert db.session.scalar(text(prepared)) == 1
    with pytest.raises(DataError) as refused:
        plain.execute({"of": CANARY})
    assert CANARY not in everything_about(refused.value)


def test_rows_that_are_read_plainly_have_names_and_instants_in_utc(app: Flask) -> None:
    reading = Reading(
        select(Account.slug, Account.created_at, Account.next_due_at)
        .where(Account.slug == bindparam("slug"), Account.slug.in_(["own", "other"]))
        .order_by(Account.id)
    )
    db.session.execute(text("SET LOCAL timezone = 'Asia/Kolkata'"))
    account = factories.account(slug="own")
    account.next_due_at = datetime(2026, 3, 4, 12, tzinfo=UTC)

    rows = reading.rows(slug="own")

    assert [(row.slug, row.created_at, row.next_due_at) for row in rows] == [
        ("own", account.created_at, account.next_due_at)
    ]
    assert {rows[0].created_at.tzinfo, rows[0].next_due_at.tzinfo} == {UTC}


LIMITS = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"


@pytest.mark.parametrize(("is_pooled", "remaining"), [(False, "20s"), (True, "0")])
def test_waiting_is_bounded_and_a_pooler_gets_its_connection_back_as_it_was(
    environ: dict[str, str], is_pooled: bool, remaining: str
) -> None:
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
