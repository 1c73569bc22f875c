"""What the tests run in processes of their own: hold servers, work with them, keep secrets."""

import os
import random
import secrets
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg

from refine.embedded import (
    database_url,
    kept_secret,
    owned_servers,
    redis_url,
    servers_available,
)
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


def work(data_dir: Path, rounds: str) -> None:
    """Run short commands one after the other, each of which uses both servers."""
    import redis  # noqa: PLC0415 - not every user that holds servers may import it

    address = database_url(data_dir).replace("+psycopg", "")
    for _ in range(int(rounds)):
        with (
            servers_available(data_dir, postgres=True, valkey=True, holder="work"),
            psycopg.connect(address) as connection,
            redis.Redis.from_url(redis_url(data_dir)) as store,
        ):
            time.sleep(random.uniform(0, 0.1))  # other processes come and go meanwhile
            connection.execute("SELECT pg_advisory_xact_lock(1)")  # IF NOT EXISTS is no lock
            connection.execute("CREATE TABLE IF NOT EXISTS work (id serial)")
            connection.execute("INSERT INTO work DEFAULT VALUES")
            store.incr("work")
        time.sleep(random.uniform(0, 0.1))  # so that owners stop in between


def keep_secrets(data_dir: Path, rounds: str) -> None:
    """Print the folder's secrets 0, 1, … as this process sees them."""
    os.umask(0)
    for number in range(int(rounds)):
        secret = kept_secret(data_dir, f"secret-{number}", lambda: secrets.token_hex(16))
        sys.stdout.write(f"{secret}\n")


if __name__ == "__main__":
    acts = {"hold": hold, "work": work, "keep_secrets": keep_secrets}
    name, folder, *arguments = sys.argv[1:]
    acts[name](Path(folder), *arguments)
