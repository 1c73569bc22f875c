"""Private folders."""

import os
import stat
from pathlib import Path

from refine.errors import EmbeddedError

PRIVATE = 0o700


def make_private(folder: Path) -> None:
    """Makes the folder for this user alone; leaves the mode of one that is there as it is."""
    try:
        folder.mkdir(mode=PRIVATE, parents=True)
    except FileExistsError:
        return
    folder.chmod(PRIVATE)  # whatever the umask


def refuse_foreign(folder: Path) -> None:
    """Raises EmbeddedError if the folder is there but not a private folder of this user.

    Anybody may put a folder, or a link to one, into the temporary directory before we do.
    """
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not private or found.st_uid != os.geteuid():
        raise EmbeddedError(f"{folder} is not a private folder of this user: remove it")
