"""The database: migrations, the role that the application runs as, and the keys of its content."""

import signal
import sys

import click
from cryptography.fernet import Fernet

from refine import database_roles
from refine.cli.context import InApplication, application
from refine.cli.output import console
from refine.cli.upgrading import require_as_migrated, upgrade_database
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import WrappedKey
from refine.models.audit import PLATFORM, AuditLog
from refine.rules.quantities import abbreviated, plural

_BATCH = 100


@click.group("db")
def database() -> None:
    """Manage the database: migrations and roles."""


@database.command("upgrade")
@click.option(
    "--stay", is_flag=True, help="Then stay until SIGTERM: honcho ends all with the first."
)
def db_upgrade(*, stay: bool) -> None:
    """Apply all migrations, and compare the schema with what they make; safe to repeat.

    Connects as the owner of the tables: with REFINE_OWNER_DATABASE_URL, otherwise DATABASE_URL.
    """
    stop_signals = {signal.SIGTERM, signal.SIGINT}
    if stay:
        signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
    with application("db upgrade", check_keys=False, may_install=True, as_table_owner=True):
        upgrade_database()
        require_as_migrated()
        console.print("the database is up to date")
    if stay:
        signal.sigwait(stop_signals)


@database.command("roles")
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


@click.group()
def keys() -> None:
    """Manage REFINE_ENCRYPTION_KEYS. Whoever has these keys can read all content."""


@keys.command("new")
def keys_new() -> None:
    """Print a new key for REFINE_ENCRYPTION_KEYS. Keep a copy: without it, all content is lost."""
    click.echo(Fernet.generate_key().decode())


@keys.command("rotate", cls=InApplication)
def keys_rotate() -> str:
    """Wrap every data key with the first of REFINE_ENCRYPTION_KEYS.

    To change the key: put a new key (`refine keys new`) in front of the old ones, restart every
    process, run this command, and remove the old keys once it says so. Everything can keep running;
    no memory or record is changed. If it is interrupted, run it again.
    """
    done, broken, after_id = 0, list[int](), 0
    while part := WrappedKey.rotate(after_id=after_id, limit=_BATCH):
        db.session.commit()
        after_id, done = part.after_id, done + part.rotated
        broken += part.broken
    if done:
        AuditLog.record("keys_rotated", chain=PLATFORM, data={"data_keys": done})
    left = WrappedKey.count_under_older_keys() - len(broken)
    db.session.commit()
    if broken:
        listed = abbreviated([*map(str, broken)], ", ")
        raise click.ClickException(
            f"{plural(len(broken), 'altered data key')} cannot be opened ({listed}): restore "
            f"from a backup. Data keys rewrapped: {done:,}"
        )
    if left:
        raise click.ClickException(
            f"{plural(left, 'data key')} could not be locked; run this command again"
        )
    return (
        f"data keys rewrapped: {done:,}; all data keys now need only the first of "
        "REFINE_ENCRYPTION_KEYS"
    )
