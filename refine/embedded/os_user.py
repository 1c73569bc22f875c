"""The OS user for PostgreSQL when we are root: it refuses to run as root."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from refine.errors import EmbeddedError

_NAME = "refine-postgres"


@dataclass(frozen=True)
class OsUser:
    """A user and group of the operating system, by number."""

    uid: int
    gid: int

    def command_prefix(self) -> list[str]:
        """Return what runs a command as this user, with no rights over other files."""
        return [
            _setpriv(),
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
    user = _user(_NAME) or _create_user() or _user("nobody")  # initdb needs a user with a name
    if user is None:
        raise EmbeddedError(
            "PostgreSQL does not run as root: run Refine as another user, or set DATABASE_URL"
        )
    return user


def _user(name: str) -> OsUser | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return OsUser(entry.pw_uid, entry.pw_gid)


def _create_user() -> OsUser | None:
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        return None
    options = ["--system", "--no-create-home", "--home-dir", "/nonexistent"]
    shell = ["--shell", "/usr/sbin/nologin"]
    subprocess.run([useradd, *options, *shell, _NAME], capture_output=True, check=False)  # noqa: S603
    return _user(_NAME)


def _setpriv() -> str:
    found = shutil.which("setpriv")
    if found is None:
        raise EmbeddedError(
            "PostgreSQL does not run as root, and setpriv (util-linux), which changes the user, is "
            "missing: run Refine as another user, or set DATABASE_URL"
        )
    return found
