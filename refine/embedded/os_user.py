"""The OS user for PostgreSQL when we are root: it refuses to run as root."""

import os
import pwd
import shutil
import stat
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

    def command_prefix(self, binary: Path) -> list[str]:
        """Return a command that runs ``binary`` as this user, with no rights over other files.

        If root installed the binary where others may not go, it may look there, and so read files
        of others; it can still not write them.
        """
        capabilities = "-all" if _is_open_to_all(binary) else "-all,+dac_read_search"
        return [
            _setpriv(),
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            f"--inh-caps={capabilities}",
            f"--ambient-caps={capabilities}",
            f"--bounding-set={capabilities}",
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


def _is_open_to_all(binary: Path) -> bool:
    real = binary.resolve()
    may_enter = all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)
    return may_enter and real.stat().st_mode & 0o005 == 0o005


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
