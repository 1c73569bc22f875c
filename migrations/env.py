"""Alembic's environment: the application's engine, the models' metadata."""

from typing import Any

from alembic import context
from flask import current_app

from refine.models import schema_version

database = current_app.extensions["migrate"].db


def note_releases(ctx: Any, step: Any, **_: Any) -> None:
    schema_version.note_releases(ctx.connection, step)


def run_migrations() -> None:
    """Run each migration in a transaction of its own, and no other upgrade meanwhile."""
    with schema_version.upgrading(), database.engine.connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=database.metadata,
            transaction_per_migration=True,
            compare_type=True,
            compare_server_default=True,
            on_version_apply=note_releases,
        )
        with context.begin_transaction():
            context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("refine: migrations run against a database; offline mode is not supported")
run_migrations()
