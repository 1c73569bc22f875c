"""hold.py HOLDER DATA_DIR [valkey]: has both servers run, or Valkey alone, until the input ends.

HOLDER ``up`` owns them as ``refine up`` does; any other is a command that needs them.
"""

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from refine.embedded import owned_servers, servers_available
from refine.errors import EmbeddedError


def held(holder: str, data_dir: Path, *, postgres: bool) -> AbstractContextManager[object]:
    if holder == "up":
        return owned_servers(data_dir, postgres=postgres)
    return servers_available(data_dir, postgres=postgres, valkey=True, holder=holder)


def main(holder: str, data_dir: str, *servers: str) -> None:
    try:
        with held(holder, Path(data_dir), postgres=servers != ("valkey",)):
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.read()
    except EmbeddedError as error:
        sys.exit(f"{type(error).__name__}: {error}")


main(*sys.argv[1:])
