"""The keys of REFINE_ENCRYPTION_KEYS."""

import click
from cryptography.fernet import Fernet
from rich.progress import Progress

from refine.cli.context import application
from refine.cli.output import console
from refine.extensions import db
from refine.models import AuditLog, WrappedKey
from refine.models.audit import PLATFORM

_BATCH = 100
_MOST_LISTED = 10


@click.group()
def keys() -> None:
    """The keys of REFINE_ENCRYPTION_KEYS. Who holds them can read."""


@keys.command("new")
def keys_new() -> None:
    """Print a fresh key for REFINE_ENCRYPTION_KEYS. Keep a copy: without it all content is lost."""
    click.echo(Fernet.generate_key().decode())


@keys.command("rotate")
def keys_rotate() -> None:
    """Wrap every data key by the first of REFINE_ENCRYPTION_KEYS.

    To change the key: put a new one (`refine keys new`) in front of the old ones, restart every
    process with that, rotate, and remove the old keys when this says so. Everything may run
    meanwhile, no memory and no record is touched, and a rotation that was cut off is resumed by
    running it again.
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
            listed = ", ".join(map(str, broken[:_MOST_LISTED]))
            raise click.ClickException(
                f"{len(broken):,} data keys were altered and cannot be opened ({listed}); restore "
                f"them from a backup. {done:,} others were wrapped anew"
            )
        if left:
            raise click.ClickException(f"{left:,} data keys are in use just now; run this again")
        console.print(
            f"{done:,} data keys were wrapped anew; all of them are under the first key now, and "
            "REFINE_ENCRYPTION_KEYS needs no other"
        )
