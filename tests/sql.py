"""Raw SQL in transactions of its own: what others do, and what gets past the application."""

from typing import Any

from refine.extensions import db


def run(*statements: str) -> None:
    """Execute in one transaction, and commit it."""
    with db.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def tamper(*statements: str) -> None:
    """Execute with every trigger and foreign key switched off, as a superuser can."""
    run("SET LOCAL session_replication_role = replica", *statements)


def value(statement: str) -> Any:
    """Return the first column of the first row, as committed."""
    with db.engine.connect() as connection:
        return connection.exec_driver_sql(statement).scalar()


def is_anybody_waiting() -> bool:
    """Whether a connection of this database waits for another one's lock."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    return bool(value(waits + "AND datname = current_database()"))


def snapshot() -> dict[str, list[str]]:
    """Return all that is committed, table by table."""
    with db.engine.connect() as connection:
        return {
            table: sorted(connection.exec_driver_sql(f"SELECT t::text FROM {table} t").scalars())
            for table in db.metadata.tables
        }
