"""The schema is compared with what the migrations make."""

from collections.abc import Iterator

import pytest
from flask import Flask
from flask_migrate import upgrade
from sqlalchemy import Connection

from refine.extensions import db
from refine.models import schema, schema_version
from tests import sql
from tests.conftest import app_of
from tests.fingerprints import listing

# What each of these changes is called.
CHANGES = {
    "ALTER TABLE audit_logs DISABLE TRIGGER audit_logs_append_only": (
        "trigger audit_logs_append_only of audit_logs"
    ),
    "DROP TRIGGER agents_over_budget ON agents": "trigger agents_over_budget of agents",
    "CREATE TRIGGER mine BEFORE INSERT ON audit_logs EXECUTE FUNCTION refuse_change()": (
        "trigger mine of audit_logs"
    ),
    "ALTER FUNCTION refuse_change() RESET search_path": "function refuse_change",
    "CREATE OR REPLACE FUNCTION note_last_session() RETURNS trigger LANGUAGE plpgsql "
    "SET search_path FROM CURRENT AS $$ BEGIN RETURN NULL; END $$": "function note_last_session",
    "DROP INDEX ix_agents_over_budget": "index ix_agents_over_budget",
    "DROP INDEX uq_users_email; CREATE INDEX uq_users_email ON users (email)": (
        "index uq_users_email"
    ),
    "ALTER TABLE accounts ALTER COLUMN name DROP NOT NULL": "table accounts",
    "ALTER TABLE agents ADD COLUMN note text": "table agents",
    "ALTER TABLE memory_tasks ALTER COLUMN created_at DROP DEFAULT": "table memory_tasks",
    "ALTER TABLE users DROP COLUMN created_at": "table users",
    "ALTER TABLE periodic_work SET UNLOGGED": "table periodic_work",
    "ALTER TABLE data_keys DROP CONSTRAINT ck_data_keys_purpose": "table data_keys",
    "CREATE RULE mine AS ON UPDATE TO chain_heads DO INSTEAD NOTHING": "table chain_heads",
    "ALTER TABLE invitations DISABLE TRIGGER ALL": "table invitations",
}

OF_OPERATORS = (
    "CREATE INDEX mine ON agents (created_at)",
    "CREATE TABLE notes (id bigint)",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "ALTER TABLE agents ALTER COLUMN name SET STATISTICS 500",
)


@pytest.fixture
def connection(app: Flask) -> Iterator[Connection]:
    """A transaction that is rolled back."""
    db.session.rollback()
    with db.engine.connect() as connection:
        yield connection


def test_whatever_was_changed_is_named(connection):
    for change in CHANGES:
        connection.exec_driver_sql(change)

    assert schema.differences(connection) == sorted(CHANGES.values())


def test_what_operators_add_is_no_difference(connection):
    for statement in OF_OPERATORS:
        connection.exec_driver_sql(statement)

    assert schema.differences(connection) == []


def test_the_database_of_a_later_release_is_not_compared(connection):
    version = sql.value("SELECT version_num FROM alembic_version")
    sql.run("UPDATE alembic_version SET version_num = '9001'")
    schema_version.forget()
    try:
        connection.exec_driver_sql("DROP INDEX ix_agents_over_budget")

        assert schema.differences(connection) == []
    finally:
        connection.rollback()
        sql.run(f"UPDATE alembic_version SET version_num = '{version}'")
        schema_version.forget()


def test_any_role_can_compare(connection):
    connection.exec_driver_sql("CREATE ROLE reader")
    connection.exec_driver_sql("DROP INDEX ix_agents_over_budget")
    connection.exec_driver_sql("SET LOCAL ROLE reader")

    assert schema.differences(connection) == ["index ix_agents_over_budget"]


def test_the_list_holds_all_that_the_migrations_make(fresh):
    with app_of(fresh):
        upgrade()

        assert listing() == schema.LISTED.read_text()
