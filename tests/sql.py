"""Raw SQL in transactions of its own: what others do, and what gets past the application."""

from typing import Any

from sqlalchemy import text

from refine.extensions import db


def run(*statements: str, **values: Any) -> None:
    """Execute in one transaction, and commit it."""
    with db.engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement), values)


def tamper(*statements: str, **values: Any) -> None:
    """Execute with every trigger and foreign key switched off, as a superuser can."""
    run("SET LOCAL session_replication_role = replica", *statements, **values)


def value(statement: str, **values: Any) -> Any:
    """Return the first column of the first row, as committed."""
    with db.engine.connect() as connection:
        return connection.execute(text(statement), values).scalar()


def snapshot() -> dict[str, list[str]]:
    """Return all that is committed, table by table."""
    with db.engine.connect() as connection:
        return {
            table: sorted(
                str(row) for row in connection.execute(text(f"SELECT t::text FROM {table} t"))
            )
            for table in db.metadata.tables
        }
