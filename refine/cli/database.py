"""Migrations, and the role that the application runs as."""

import sys

import click
from flask_migrate import upgrade

from refine import database_roles
from refine.cli.context import application
from refine.cli.output import console
from refine.errors import BeingUpgraded, InvalidValue
from refine.extensions import safe_rollback
from refine.models import WrappedKey, schema_version


def upgrade_database() -> None:
    """Apply all migrations, and give the running roles their privileges.

    BeingUpgraded if the database is for another version of Refine.
    """
    with schema_version.upgrading():
        migration = schema_version.current()
        if migration is not None:  # before anything is written
            if migration not in schema_version.migrations():
                raise BeingUpgraded(schema_version.problem())
            WrappedKey.check_keyring()
            safe_rollback()
        upgrade()
        database_roles.renew()


@click.group()
def db() -> None:
    """Manage the database: migrations and roles."""


@db.command("upgrade")
def db_upgrade() -> None:
    """Apply all migrations; safe to repeat.

    Connects as the owner of the tables: with REFINE_OWNER_DATABASE_URL, otherwise DATABASE_URL.
    """
    with application("db upgrade", check_keys=False, may_install=True, as_table_owner=True):
        upgrade_database()
        console.print("the database is up to date")


@db.command("roles")
@click.option(
    "--role", default="refine_app", show_default=True, help="The role that runs the application."
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Set the role's password, read from standard input (its first line).",
)
def db_roles(role: str, password_stdin: bool) -> None:
    """Create a role for the application that can read and write rows, and nothing else.

    It cannot alter or truncate tables, disable triggers or change audit records. Safe to repeat;
    connects as the owner of the tables, as `refine db upgrade` does. Set DATABASE_URL to the new
    role afterwards, and REFINE_OWNER_DATABASE_URL to the owner where migrations run.

    Example: printf '%s' "$PASSWORD" | refine db roles --password-stdin
    """
    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else None
    if password == "":
        raise InvalidValue("the password must not be empty")
    with application("db roles", check_keys=False, as_table_owner=True):
        database_roles.grant(role, password)
        console.print(f"the role {role} can run the application; use it in DATABASE_URL")
