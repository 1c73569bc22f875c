"""Plain statements, carried out by psycopg itself."""

from datetime import UTC, datetime

import pytest
from flask import Flask
from sqlalchemy import Integer, Text, any_, bindparam, cast, literal, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DataError

from refine.extensions import db
from refine.extensions.statements import (
    Plain,
    PlainQuery,
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
