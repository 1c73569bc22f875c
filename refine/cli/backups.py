"""Backups: written, tried, restored into an empty database."""

import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp
from typing import Any, TextIO

import click

from refine.cli.audit import verify
from refine.cli.context import application, in_context, settings_without_installation
from refine.cli.output import console
from refine.cli.upgrading import require_as_migrated, upgrade_database
from refine.embedded import owned_servers
from refine.errors import Refused
from refine.extensions import db
from refine.models import backups, schema_version
from refine.models.audit.anchor import read_anchor
from refine.models.backups import Backup
from refine.models.restoring import end_all, erase_again, note_restored
from refine.rules.quantities import plural

_STDOUT = Path("-")
_FILE = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
_MEGABYTE = 1_000_000


@click.command()
@click.argument("file", metavar="FILE", type=_FILE)
@click.option("--check", is_flag=True, help="Try FILE instead: restore it, verify it, drop it.")
def backup(file: Path, check: bool) -> None:
    """Write a backup of the database to FILE (`-`: standard output).

    It holds every row as of one moment, while everything keeps running. Memories and prompts in it
    are encrypted; names, addresses and figures are not. Keep REFINE_ENCRYPTION_KEYS elsewhere:
    whoever has both can read everything, and with one of them alone nobody can.

    With --check, restores FILE into a bundled PostgreSQL of its own, and verifies it.
    """
    if check:
        _drill(file)
        return
    is_piped = file == _STDOUT
    with application("backup"):
        manifest = backups.write(sys.stdout.buffer) if is_piped else _write(file)
        size = "" if is_piped else f", {file.stat().st_size / _MEGABYTE:,.1f} MB"
        click.echo(f"backed up {_counts(manifest)}{size}", err=is_piped)
        keys = ", ".join(manifest["keys"])
        click.echo(f"it needs these encryption keys (by fingerprint): {keys}", err=is_piped)


def _write(file: Path) -> dict[str, Any]:
    """Write the file for this user alone; it has its name once it is whole."""
    if file.exists():
        raise Refused(f"{file} exists already; give another name")
    descriptor, partial = mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            manifest = backups.write(out)
            out.flush()
            os.fsync(descriptor)
        Path(partial).rename(file)
    except BaseException:
        Path(partial).unlink()
        raise
    return manifest


@click.command()
@click.argument("file", metavar="FILE", type=click.File("rb"))
@click.option(
    "--keep-tokens",
    is_flag=True,
    help="End nothing: nothing was changed after the backup, as when moving to another server.",
)
@click.option(
    "--anchor",
    "anchor_file",
    type=click.File(encoding="utf-8"),
    help="An anchor (`refine audit anchor`) taken after the backup: erase again what it lists.",
)
def restore(file: Any, keep_tokens: bool, anchor_file: TextIO | None) -> None:
    """Restore the backup FILE into an empty database, and verify it.

    Needs the encryption keys that FILE was sealed with. Connects as the owner of the tables.

    A backup knows nothing of what was revoked after it. So passwords, sign-ins, tokens and all else
    that lets somebody in end, and are listed; `refine user reset` and `refine token add` let people
    and programs in again. With --keep-tokens, they stay.
    """
    found = backups.opened(file)
    newer = read_anchor(anchor_file.read()) if anchor_file is not None else None
    with application("restore", check_keys=False, may_install=True, as_table_owner=True):
        _restore(found, newer, is_complete=keep_tokens)


def _restore(found: Backup, newer: dict[str, Any] | None = None, *, is_complete: bool) -> None:
    backups.require_fitting(found)
    if schema_version.current() is None:
        backups.require_no_tables()
        upgrade_database()
    elif (problem := schema_version.problem()) is not None:
        raise Refused(problem)
    require_as_migrated()  # its guards are whole
    backups.load(found, is_complete=is_complete)
    made_at = found.manifest["at"]
    ended = {} if is_complete else end_all(made_at)
    erased = erase_again(newer) if newer is not None else {}
    note_restored(made_at, ended, is_complete=is_complete)
    db.session.commit()
    console.print(f"restored {_counts(found.manifest)}, as of {made_at}")
    for words, count in ended.items():
        console.print(f"ended: {count:,} {words}")
    for words, count in erased.items():
        console.print(f"erased again: {count:,} {words}")
    outcome = verify(found.manifest["anchor"])
    if outcome.first_problem is not None:
        raise click.ClickException(outcome.first_problem)
    console.print("verified: nothing is missing, and everything is as recorded")


def _drill(file: Path) -> None:
    with TemporaryDirectory(prefix="refine-") as name, file.open("rb") as given:
        found, folder = backups.opened(given), Path(name)
        settings = settings_without_installation(folder, with_keys=True)
        began = time.monotonic()
        with owned_servers(folder, valkey=False, holder="backup"), in_context(settings):
            _restore(found, is_complete=False)
            seconds = time.monotonic() - began
    console.print(
        f"the backup can be restored: {seconds:,.1f} seconds with a new PostgreSQL; nothing of "
        "this trial is left"
    )


def _counts(manifest: dict[str, Any]) -> str:
    rows = manifest["rows"]
    memories = plural(rows["agent_memories"], "memory", "memories")
    records = plural(rows["audit_logs"], "record")
    return f"{memories}, {records}, {plural(sum(rows.values()), 'row')} in all"
