"""A temporary database, and settings that ignore the environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import text

from refine.cli.context import in_context
from refine.cli.upgrading import upgrade_database
from refine.embedded import owned_servers
from refine.extensions import db
from refine.settings import Settings

# For speed: nothing outlives the command.
_UNSAFE_BUT_FAST = ("fsync", "synchronous_commit", "full_page_writes")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder that is removed at the end."""
    with TemporaryDirectory(prefix="refine-bench-") as folder:
        yield Path(folder)


@contextmanager
def temporary_database(
    settings: Settings, *, durable: bool = True, valkey: bool = False
) -> Iterator[None]:
    """Run an empty database in the data folder of the settings, with an application's context.

    One that is not ``durable`` is faster: it would not survive a crash of the machine.
    ``valkey``: with an empty Valkey beside it.
    """
    with owned_servers(settings.data_dir, valkey=valkey, holder="bench"), in_context(settings):
        if not durable:
            _hurry()
        upgrade_database()
        db.session.rollback()  # nothing stays open while a command or its processes work
        yield


def settings_for(folder: Path, **variables: str) -> Settings:
    """Return the default settings, with this data folder and these variables; without second
    readings, which simulated models do not give.
    """
    own = {"REFINE_DATA_DIR": str(folder), "REFINE_SECOND_READING": "off"}
    return Settings.from_environ({**own, **variables})


def _hurry() -> None:
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for setting in _UNSAFE_BUT_FAST:
            connection.execute(text(f"ALTER SYSTEM SET {setting} = off"))
        connection.execute(text("SELECT pg_reload_conf()"))
