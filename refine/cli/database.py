"""Migrations."""

import click
from flask_migrate import current, upgrade

from refine.cli.context import application
from refine.cli.output import console


@click.group()
def db() -> None:
    """Manage database migrations."""


@db.command("upgrade")
def db_upgrade() -> None:
    """Apply all migrations; safe to repeat."""
    with application("db upgrade", check_keys=False, may_install=True):
        upgrade()
        console.print("the database is up to date")


@db.command("current")
def db_current() -> None:
    """Print the current migration of the database."""
    with application("db current", check_keys=False):
        current()
