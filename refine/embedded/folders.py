"""The private data folder: where its servers listen, and the secrets that are kept in it."""

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from refine.errors import EmbeddedError, SettingsError

POSTGRES_SOCKET = ".s.PGSQL.5432"  # the name that libpq looks for
_VALKEY_SOCKET = "valkey.sock"
_LONGEST_SOCKET_BYTES = 103  # macOS; Linux allows four more

# anything else would need quoting, and SQLAlchemy, libpq and redis-py disagree on how
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")


def database_url(data_dir: Path) -> str:
    return f"postgresql+psycopg://refine@/refine?host={socket_dir(data_dir)}&port=5432"


def redis_url(data_dir: Path) -> str:
    return f"unix://{valkey_socket(data_dir)}?db=0"


def valkey_socket(data_dir: Path) -> Path:
    return socket_dir(data_dir) / _VALKEY_SOCKET


def socket_dir(data_dir: Path) -> Path:
    """Return the sockets' folder: in the data folder, or a temporary one if its path is long."""
    data_dir = data_dir.resolve()
    inside = data_dir / "run"
    if _is_usable(inside):
        return inside
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    name = f"refine-{os.geteuid()}-{digest}"
    folder = Path(tempfile.gettempdir()).resolve() / name
    if not _is_usable(folder):
        folder = Path("/tmp") / name  # noqa: S108 - the owner is checked
    if os.path.lexists(folder) and not is_own_folder(folder, forbidden_mode=0o077):
        raise EmbeddedError(f"{folder} is not a private folder of this user: remove it")
    return folder


def _is_usable(folder: Path) -> bool:
    longest = os.fsencode(folder / POSTGRES_SOCKET)
    return len(longest) <= _LONGEST_SOCKET_BYTES and bool(_PLAIN_PATH.fullmatch(str(folder)))


def is_own_folder(folder: Path, *, forbidden_mode: int) -> bool:
    """Tell whether a folder (no link) is this user's own, and others lack these rights."""
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & forbidden_mode
    return is_private and found.st_uid == os.geteuid()


def make_private(folder: Path) -> None:
    """Create the folder for this user alone; an existing one keeps its mode."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return
    folder.chmod(0o700)  # whatever the umask


def kept_secret(data_dir: Path, name: str, make: Callable[[], str]) -> str:
    """Return the secret in a file, created if missing; SettingsError if it is empty."""
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
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, secret.encode())
        os.fsync(descriptor)
        os.link(temporary, path)
    except FileExistsError:
        pass  # another process was first, and its secret counts
    finally:
        os.unlink(temporary)
        os.fsync(folder)
        os.close(folder)
        os.close(descriptor)
