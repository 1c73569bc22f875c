"""The keys of REFINE_ENCRYPTION_KEYS."""

import click
from cryptography.fernet import Fernet
from rich.progress import Progress

from refine.cli.context import application
from refine.cli.output import console
from refine.extensions import db
from refine.models import WrappedKey
from refine.models.audit import PLATFORM, AuditLog
from refine.rules.quantities import plural

_BATCH = 100
_MAX_LISTED = 10


@click.group()
def keys() -> None:
    """Manage REFINE_ENCRYPTION_KEYS. Whoever has these keys can read all content."""


@keys.command("new")
def keys_new() -> None:
    """Print a new key for REFINE_ENCRYPTION_KEYS. Keep a copy: without it, all content is lost."""
    click.echo(Fernet.generate_key().decode())


@keys.command("rotate")
def keys_rotate() -> None:
    """Wrap every data key with the first of REFINE_ENCRYPTION_KEYS.

    To change the key: put a new key (`refine keys new`) in front of the old ones, restart every
    process, run this command, and remove the old keys once it says so. Everything can keep running;
    no memory or record is changed. If it is interrupted, run it again.
    """
    with application("keys rotate"):
        done, broken, after_id = 0, list[int](), 0
        with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
            task = shown.add_task("rotating", total=WrappedKey.under_older_keys())
            while part := WrappedKey.rotate(after_id=after_id, limit=_BATCH):
                db.session.commit()
                after_id, done = part.after_id, done + part.rotated
                broken += part.broken
                shown.update(task, completed=done)
        if done:
            AuditLog.record("keys_rotated", chain=PLATFORM, data={"data_keys": done})
        left = WrappedKey.under_older_keys() - len(broken)
        db.session.commit()
        if broken:
            listed = ", ".join(map(str, broken[:_MAX_LISTED]))
            raise click.ClickException(
                f"{plural(len(broken), 'altered data key')} cannot be opened ({listed}): restore "
                f"from a backup. Data keys rewrapped: {done:,}"
            )
        if left:
            raise click.ClickException(
                f"{plural(left, 'data key')} could not be locked; run this command again"
            )
        console.print(
            f"data keys rewrapped: {done:,}; all data keys now need only the first of "
            "REFINE_ENCRYPTION_KEYS"
        )
