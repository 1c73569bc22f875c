"""Where the embedded servers of a data folder listen. Nothing is started here."""

import hashlib
import os
import re
import tempfile
from pathlib import Path

from refine.embedded.private_folders import require_own_folder

POSTGRES_SOCKET = ".s.PGSQL.5432"  # the name that libpq looks for
VALKEY_SOCKET = "valkey.sock"
SOCKET_PATH_BYTES = 103  # macOS; Linux allows four more

# anything else would need quoting, and SQLAlchemy, libpq and redis-py disagree on how
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")


def database_url(data_dir: Path) -> str:
    """Return the SQLAlchemy URL of this data folder's PostgreSQL; its port overrides PGPORT."""
    return f"postgresql+psycopg://refine@/refine?host={socket_dir(data_dir)}&port=5432"


def redis_url(data_dir: Path) -> str:
    return f"unix://{valkey_socket(data_dir)}?db=0"


def socket_dir(data_dir: Path) -> Path:
    """Return the folder of both sockets, in the data folder if its path is short and plain.

    Otherwise a temporary one of the user's; EmbeddedError if somebody else has put it there.
    """
    data_dir = data_dir.resolve()
    inside = data_dir / "run"
    return inside if _usable(inside) else _temporary(data_dir)


def valkey_socket(data_dir: Path) -> Path:
    return socket_dir(data_dir) / VALKEY_SOCKET


def _usable(folder: Path) -> bool:
    longest = os.fsencode(folder / POSTGRES_SOCKET)
    return len(longest) <= SOCKET_PATH_BYTES and bool(_PLAIN_PATH.fullmatch(str(folder)))


def _temporary(data_dir: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    name = f"refine-{os.geteuid()}-{digest}"
    folder = Path(tempfile.gettempdir()).resolve() / name
    if not _usable(folder):
        folder = Path("/tmp") / name  # noqa: S108 - the owner is checked
    require_own_folder(folder)
    return folder
