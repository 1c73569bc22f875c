"""Migrations."""

import click
from flask_migrate import current, upgrade

from refine.cli.context import application
from refine.cli.output import console


@click.group()
def db() -> None:
    """The database's structure."""


@db.command("upgrade")
def db_upgrade() -> None:
    """Bring the database to the newest migration; safe to run again."""
    with application("db upgrade", check_keys=False, may_install=True):
        upgrade()
        console.print("the database is at the newest migration")


@db.command("current")
def db_current() -> None:
    """Print the migration that the database is at."""
    with application("db current", check_keys=False):
        current()
