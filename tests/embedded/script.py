"""What the tests run in processes of their own: hold servers, keep secrets."""

import os
import secrets
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from refine.embedded import kept_secret, owned_servers, servers_available
from refine.errors import EmbeddedError


def hold(data_dir: Path, holder: str, *servers: str) -> None:
    """Have both servers run, or Valkey alone, until the input ends.

    The holder ``up`` owns them as ``refine up`` does; any other is a command that needs them.
    """
    try:
        with _held(data_dir, holder, postgres=servers != ("valkey",)):
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.read()
    except EmbeddedError as error:
        sys.exit(f"{type(error).__name__}: {error}")


def _held(data_dir: Path, holder: str, *, postgres: bool) -> AbstractContextManager[object]:
    if holder == "up":
        return owned_servers(data_dir, postgres=postgres)
    return servers_available(data_dir, postgres=postgres, valkey=True, holder=holder)


def keep_secrets(data_dir: Path, rounds: str) -> None:
    """Print the folder's secrets 0, 1, … as this process sees them."""
    os.umask(0)
    for number in range(int(rounds)):
        secret = kept_secret(data_dir, f"secret-{number}", lambda: secrets.token_hex(16))
        sys.stdout.write(f"{secret}\n")


if __name__ == "__main__":
    acts = {"hold": hold, "keep_secrets": keep_secrets}
    name, folder, *arguments = sys.argv[1:]
    acts[name](Path(folder), *arguments)
