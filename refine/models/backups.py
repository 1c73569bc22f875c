"""Backups: every row, as of one moment, in a file that needs no program of PostgreSQL's.

A zip archive with the rows of each table, as COPY gives them, and a manifest. The tables come from
the migrations: a file can bring rows along, and nothing else.
"""

import json
import zlib
from typing import IO, Any, NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from psycopg import Copy
from sqlalchemy import Table, exists, select, text

from refine import __version__, clock
from refine.errors import InvalidValue, Refused
from refine.extensions import copy, db
from refine.models import schema_version
from refine.models.audit.anchor import anchor
from refine.models.integrity import snapshot
from refine.models.keys import WrappedKey
from refine.sealing import keyring, missing_key

FORMAT = "refine-backup-1"
_MANIFEST = "manifest.json"
_BLOCK_BYTES = 1 << 16
# What reading a damaged archive raises.
_DAMAGED = (BadZipFile, zlib.error, EOFError, KeyError)
_NO_BACKUP = "this is not a whole backup; give a file written by `refine backup`"
# So much further ids go on after a restore: those that were given after the backup mean no new row.
_GAP = 1_000_000

_SEQUENCES = (
    "SELECT sequencename, last_value FROM pg_sequences "
    "WHERE schemaname = current_schema() AND last_value IS NOT NULL"
)
_ANY_TABLE = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LIMIT 1"
# No limit that is meant for requests ends these transactions.
_NO_LIMITS = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"


class Backup(NamedTuple):
    archive: ZipFile
    manifest: dict[str, Any]


def write(out: IO[bytes]) -> dict[str, Any]:
    """Write a backup of this moment, without a lock; return its manifest."""
    db.session.commit()
    with snapshot(), ZipFile(out, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        db.session.execute(text(_NO_LIMITS))
        in_use = select(WrappedKey.wrapped_by).where(WrappedKey.wrapped.is_not(None))
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "at": clock.iso(clock.now()),
            "version": __version__,
            "migration": schema_version.current(),
            "keys": sorted(set(db.session.scalars(in_use))),
            "anchor": anchor(),
            "sequences": {row[0]: row[1] for row in db.session.execute(text(_SEQUENCES))},
            "rows": {},
        }
        for table in db.metadata.sorted_tables:
            with archive.open(table.name, "w", force_zip64=True) as entry:
                manifest["rows"][table.name] = _read_table(table, entry)
        archive.writestr(_MANIFEST, json.dumps(manifest, indent=1))
    return manifest


def _read_table(table: Table, entry: IO[bytes]) -> int:
    def read(copying: Copy) -> None:
        for block in copying:
            entry.write(block)

    return copy(f"COPY {_columns(table)} TO STDOUT (FORMAT BINARY)", read)


def _columns(table: Table) -> str:
    names = sorted(column.name for column in table.columns if column.computed is None)
    return f"{table.name} ({', '.join(names)})"


def opened(file: IO[bytes]) -> Backup:
    """Read the manifest; InvalidValue if this is no backup."""
    try:
        archive = ZipFile(file)
        manifest = json.loads(archive.read(_MANIFEST))
        if manifest["format"] != FORMAT:
            raise ValueError
    except (*_DAMAGED, ValueError, TypeError):
        raise InvalidValue(_NO_BACKUP) from None
    return Backup(archive, manifest)


def require_fitting(backup: Backup) -> None:
    """Raise WrongKey without a key that it needs, Refused if it is of another schema."""
    if unknown := sorted(set(backup.manifest["keys"]) - keyring().fingerprints):
        raise missing_key(*unknown)
    if backup.manifest["migration"] != schema_version.migrations()[0]:
        raise Refused(
            f"the backup is of the migration {backup.manifest['migration']}: restore it with "
            f"Refine {backup.manifest['version']}, then upgrade"
        )


def require_no_tables() -> None:
    """Refused if there are tables, in a database that was never migrated."""
    if (found := db.session.scalar(text(_ANY_TABLE))) is not None:
        raise Refused(f"the database is not empty: it has a table {found}; nothing was written")
    db.session.rollback()


def load(backup: Backup, *, is_complete: bool) -> None:
    """Load every row, in the transaction of ``db.session``; Refused if there are rows already.
    ``is_complete``: nothing was added after the backup, so ids go on without a gap.
    """
    tables = db.metadata.sorted_tables
    db.session.execute(text(_NO_LIMITS))
    names = ", ".join(table.name for table in tables)
    db.session.execute(text(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE"))
    for table in tables:
        if db.session.scalar(select(exists().select_from(table))):
            raise Refused(f"the database is not empty: {table.name} has rows; nothing was written")
    for table in tables:
        _load_table(backup, table)
    for name, value in backup.manifest["sequences"].items():
        after = value if is_complete else value + _GAP
        db.session.execute(text("SELECT setval(:name, :at)"), {"name": name, "at": after})


def _load_table(backup: Backup, table: Table) -> None:
    """Load a table without its triggers: the figures that they keep come along."""

    def write_all(copying: Copy) -> None:
        with backup.archive.open(table.name) as entry:
            while block := entry.read(_BLOCK_BYTES):
                copying.write(block)

    db.session.execute(text(f"ALTER TABLE {table.name} DISABLE TRIGGER USER"))
    try:
        loaded = copy(f"COPY {_columns(table)} FROM STDIN (FORMAT BINARY)", write_all)
    except _DAMAGED:
        raise InvalidValue(_NO_BACKUP) from None
    if loaded != (expected := backup.manifest["rows"][table.name]):
        raise InvalidValue(f"the backup lacks rows: {table.name} has {loaded:,} of {expected:,}")
    db.session.execute(text(f"ALTER TABLE {table.name} ENABLE TRIGGER USER"))
