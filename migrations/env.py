"""Alembic's environment: the application's engine, the models' metadata.

A migration that is incompatible with older code (it drops or renames something, or gives it another
meaning) says so: ``breaks_older_code = True``.
"""

from alembic import context
from flask import current_app

from refine.models import schema_version

database = current_app.extensions["migrate"].db


def run_migrations() -> None:
    """Run each migration in a transaction of its own, and no other upgrade meanwhile."""
    with schema_version.upgrading(), database.engine.connect() as connection:
        context.configure(
            connection=connection,
            target_metadata=database.metadata,
            transaction_per_migration=True,
            compare_type=True,
            compare_server_default=True,
            on_version_apply=note_oldest_code,
        )
        with context.begin_transaction():
            context.run_migrations()


def note_oldest_code(*, ctx, heads, **_about) -> None:  # type: ignore[no-untyped-def]
    """In the transaction of each migration, note which code is compatible with it."""
    applied = context.script.iterate_revisions(tuple(heads), "base") if heads else ()
    schema_version.note_oldest_code(ctx.connection, applied)


if context.is_offline_mode():
    raise SystemExit("refine: migrations run against a database; offline mode is not supported")
run_migrations()
