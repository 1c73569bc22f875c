"""work.py DATA_DIR ROUNDS: short commands one after the other, each of which uses both servers."""

import random
import sys
import time
from pathlib import Path

import psycopg
import redis

from refine.embedded import database_url, redis_url, servers_available


def work(data_dir: Path) -> None:
    address = database_url(data_dir).replace("+psycopg", "")
    with psycopg.connect(address) as connection, redis.Redis.from_url(redis_url(data_dir)) as store:
        time.sleep(random.uniform(0, 0.1))  # noqa: S311 - other processes come and go meanwhile
        connection.execute("SELECT pg_advisory_xact_lock(1)")  # IF NOT EXISTS is no lock
        connection.execute("CREATE TABLE IF NOT EXISTS work (id serial)")
        connection.execute("INSERT INTO work DEFAULT VALUES")
        store.incr("work")


def main(data_dir: str, rounds: str) -> None:
    for _ in range(int(rounds)):
        with servers_available(Path(data_dir), postgres=True, valkey=True, holder="work"):
            work(Path(data_dir))
        time.sleep(random.uniform(0, 0.1))  # noqa: S311 - so that owners stop in between


main(*sys.argv[1:])
