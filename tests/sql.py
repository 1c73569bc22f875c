"""Raw SQL in transactions of its own: what others do, and what gets outside the application."""

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
    tables: dict[str, list[str]] = {table: [] for table in db.metadata.tables}
    every = " UNION ALL ".join(f"SELECT '{table}', t::text FROM {table} t" for table in tables)
    with db.engine.connect() as connection:
        for table, row in connection.exec_driver_sql(every):
            tables[table].append(row)
    return {table: sorted(rows) for table, rows in tables.items()}
