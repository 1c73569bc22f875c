"""For root: a user for PostgreSQL, which refuses to run as root, and files that it can read."""

import contextlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from refine.embedded.folders import is_own_folder
from refine.errors import EmbeddedError

_NAME = "refine-postgres"
_OTHERWISE = "run Refine as another user, or set DATABASE_URL"
# Where everybody may read a copy of the binaries; not every machine lets us write to the first.
_PLACES = (Path("/var/cache"), Path("/tmp"))  # noqa: S108 - the owner is checked


@dataclass(frozen=True)
class OsUser:
    uid: int
    gid: int

    def command_prefix(self) -> list[str | Path]:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise EmbeddedError(
                "PostgreSQL does not run as root, and setpriv (util-linux), which changes the "
                f"user, is missing: {_OTHERWISE}"
            )
        return [
            setpriv,
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            "--inh-caps=-all",
            "--ambient-caps=-all",
            "--bounding-set=-all",
            "--no-new-privs",
            # again, as changing the user clears it
            "--pdeathsig=INT",
        ]


def postgres_user(cluster: Path) -> OsUser | None:
    """Return the cluster's owner, or a user for a new one; None if we are not root."""
    if os.geteuid() != 0:
        return None
    if cluster.exists() and cluster.stat().st_uid != 0:
        return OsUser(cluster.stat().st_uid, cluster.stat().st_gid)
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is not None:  # changes nothing if the user exists
        options = ["--system", "--no-create-home", "--home-dir", "/nonexistent"]
        shell = ["--shell", "/usr/sbin/nologin"]
        subprocess.run([useradd, *options, *shell, _NAME], capture_output=True, check=False)  # noqa: S603
    for name in (_NAME, "nobody"):  # initdb needs a user with a name
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return OsUser(entry.pw_uid, entry.pw_gid)
    raise EmbeddedError(f"PostgreSQL does not run as root: {_OTHERWISE}")


def readable_by_all(wheel: Path, binaries: Path) -> Path:
    """Return the wheel's folder, or a copy for each version; ``binaries`` is the folder in it."""
    if _is_open_to_all(wheel.parent / binaries):
        return wheel.parent
    for place in _PLACES:
        copy = place / f"refine-postgres-{version(wheel.name)}"
        with contextlib.suppress(OSError):
            if not os.path.lexists(copy):
                _make_copy(wheel, copy)
            if is_own_folder(copy, forbidden_mode=0o022) and _is_open_to_all(copy / binaries):
                return copy
    raise EmbeddedError(
        f"PostgreSQL does not run as root, other users cannot read {wheel.parent}, and it could "
        f"not be copied to {' or '.join(map(str, _PLACES))}: make room there, move Refine to a "
        f"folder that every user may enter, {_OTHERWISE}"
    )


def _is_open_to_all(binaries: Path) -> bool:
    real = (binaries / "postgres").resolve()
    may_enter = all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)
    return may_enter and real.stat().st_mode & 0o005 == 0o005


def _make_copy(wheel: Path, copy: Path) -> None:
    """Copy under a temporary name, then rename, so that no copy is incomplete; OSError."""
    folder = Path(tempfile.mkdtemp(dir=copy.parent, prefix=f"{copy.name}."))
    try:
        shutil.copytree(wheel / "pginstall18", folder / wheel.name / "pginstall18")
        libraries = f"{wheel.name}.libs"  # beside the package, where the binaries look for them
        if (wheel.parent / libraries).exists():
            shutil.copytree(wheel.parent / libraries, folder / libraries)
        for path in (folder, *folder.rglob("*")):  # whatever the umask at the installation
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
        folder.rename(copy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
