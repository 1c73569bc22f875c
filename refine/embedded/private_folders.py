"""Folders that only their user may enter."""

import os
import stat
from pathlib import Path

from refine.errors import EmbeddedError

PRIVATE = 0o700


def make_private(folder: Path) -> None:
    """Create the folder for this user alone; an existing one keeps its mode."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True)
    except FileExistsError:
        return
    folder.chmod(PRIVATE)  # whatever the umask


def require_own_folder(folder: Path) -> None:
    """Raise EmbeddedError for a folder of somebody else, who may have guessed its name."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not private or found.st_uid != os.geteuid():
        raise EmbeddedError(f"{folder} is not a private folder of this user: remove it")
