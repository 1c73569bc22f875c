"""The account PostgreSQL runs as where we are root, as which it refuses to run."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from refine.errors import EmbeddedError

_NAME = "refine-postgres"


@dataclass(frozen=True)
class Account:
    """A user and group, by number."""

    uid: int
    gid: int

    def command_prefix(self) -> list[str]:
        """Runs what follows as this account, able to pass the closed folders above its own.

        The parent-death signal is set here as well: the change of user drops an earlier one.
        """
        capabilities = "-all,+dac_override"
        return [
            _setpriv(),
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            f"--inh-caps={capabilities}",
            f"--ambient-caps={capabilities}",
            f"--bounding-set={capabilities}",
            "--pdeathsig=INT",
        ]

    def give(self, folder: Path) -> None:
        os.chown(folder, self.uid, self.gid)


def postgres_account(cluster: Path) -> Account | None:
    """Whoever owns the cluster; for a new one a system user of ours, else nobody.

    None where we are no root, so that no change of user is needed or possible.
    """
    if os.geteuid() != 0:
        return None
    if cluster.exists() and cluster.stat().st_uid != 0:
        return Account(cluster.stat().st_uid, cluster.stat().st_gid)
    user = _user(_NAME) or _made_user() or _user("nobody")  # initdb wants a name, not just a number
    if user is None:
        raise EmbeddedError("PostgreSQL does not run as root: use another user or set DATABASE_URL")
    return user


def _user(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)


def _made_user() -> Account | None:
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
            "PostgreSQL does not run as root, and there is no setpriv (util-linux) to change the "
            "user: use another user or set DATABASE_URL"
        )
    return found
