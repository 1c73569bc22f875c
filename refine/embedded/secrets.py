"""Secrets that are created at the first start and kept in the data folder."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from refine.embedded.private_folders import make_private
from refine.errors import SettingsError


def kept_secret(data_dir: Path, name: str, make: Callable[[], str]) -> str:
    """Return the secret in a file of the data folder, created if there is none; safe in parallel.

    SettingsError for an empty file: a new secret could not open what the old one sealed.
    """
    path = data_dir / name
    if not path.exists():
        make_private(data_dir)
        _keep(path, make())
    secret = path.read_text(encoding="utf-8").strip()
    if not secret:
        raise SettingsError(f"{path} is empty: restore the secret from your backup")
    return secret


def _keep(path: Path, secret: str) -> None:
    """Write the secret with a link: the first process wins, and none reads an incomplete one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)
            file.write(secret)
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was first, and its secret counts
    finally:
        os.unlink(temporary)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
