"""Plain statements, carried out by psycopg itself."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Integer, Select, Text, any_, bindparam, cast, event, literal, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DataError

from refine.extensions import db
from refine.extensions.statements import (
    APART,
    Plain,
    PlainQuery,
    plain_query,
    statements_in,
    together,
)
from refine.models import Account
from tests import factories
from tests.extensions.errors import everything_about

CANARY = "c4n4ry"


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


def test_a_plain_statement_has_its_constants_written_into_it(app: Flask) -> None:
    names = literal(["it's", "%(of)s"], ARRAY(Text))
    plain = Plain(select(bindparam("of", type_=Text) == any_(names), literal(True)))

    assert plain.execute({"of": "it's"}) == [(True, True)]
    assert plain.execute({"of": "%(of)s"}) == [(True, True)]
    assert plain.execute({"of": "else"}) == [(False, True)]


def test_rows_that_are_read_plainly_have_names_and_instants_in_utc(app: Flask) -> None:
    read = PlainQuery(
        select(Account.slug, Account.created_at, Account.next_due_at)
        .where(Account.slug == bindparam("slug"), Account.slug.in_(["own", "other"]))
        .order_by(Account.id)
    )
    db.session.execute(text("SET LOCAL timezone = 'Asia/Kolkata'"))
    account = factories.account(slug="own")
    account.next_due_at = datetime(2026, 3, 4, 12, tzinfo=UTC)

    rows = read.rows(slug="own")

    assert [(row.slug, row.created_at, row.next_due_at) for row in rows] == [
        ("own", account.created_at, account.next_due_at)
    ]
    assert {rows[0].created_at.tzinfo, rows[0].next_due_at.tzinfo} == {UTC}


# -- together -------------------------------------------------------------------------------------


@plain_query
def doubled() -> Select[int]:
    return select((bindparam("of", type_=Integer) * 2).label("doubled"))


def twice(of: int) -> int:
    return int(doubled().rows(of=of)[0].doubled)


@pytest.fixture
def trips(app: Flask) -> Iterator[list[int]]:
    """How many statements were sent in each trip to the database."""
    made: list[int] = []

    def note(*told: Any) -> None:
        context = told[4]
        made.append(statements_in(context))

    db.session.connection()
    event.listen(db.engine, "before_cursor_execute", note)
    yield made
    event.remove(db.engine, "before_cursor_execute", note)


def test_what_works_ask_for_first_is_asked_for_in_one_trip(trips: list[int]) -> None:
    done = together(lambda: twice(1), lambda: "nothing asked", lambda: twice(2))

    assert (done, trips) == ([2, "nothing asked", 4], [2])


def test_what_works_ask_for_later_is_asked_for_alone(trips: list[int]) -> None:
    done = together(lambda: twice(twice(3)), lambda: [twice(of) for of in (1, 1)])

    assert (done, trips) == ([12, [2, 2]], [2, 1, 1])


def test_works_that_are_put_together_of_others_need_no_trip_of_their_own(trips: list[int]) -> None:
    def pair() -> list[int]:
        return together(lambda: twice(1), lambda: twice(2))

    done = together(pair, lambda: twice(3), pair)

    assert (done, trips) == ([[2, 4], 6, [2, 4]], [5])


def test_no_trip_is_made_where_nothing_is_asked(trips: list[int]) -> None:
    assert (together(lambda: 1, lambda: 2), trips) == ([1, 2], [])


def test_an_error_of_one_statement_is_that_of_the_trip_and_tells_no_value(app: Flask) -> None:
    number = PlainQuery(select(cast(bindparam("of", type_=Text), Integer).label("number")))

    with pytest.raises(DataError) as refused:
        together(lambda: twice(1), lambda: number.rows(of=CANARY), lambda: twice(2))

    assert CANARY not in everything_about(refused.value)
    db.session.rollback()
    assert twice(4) == 8


def test_on_a_connection_that_keeps_them_apart_each_statement_is_sent_alone(
    trips: list[int],
) -> None:
    db.session.connection().execution_options(**{APART: True})

    done = together(lambda: twice(1), lambda: twice(2))

    assert (done, trips) == ([2, 4], [1, 1])
