"""The processes that work and tick, as they announce themselves in Redis.

How old a heartbeat is follows from the clock of Redis alone, because those of the hosts may differ.
Anybody who can write to Redis can write anything: what cannot be read counts as missing.
"""

import json
import os
import secrets
import socket
import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import structlog
from redis import Redis

from refine import clock
from refine.errors import Unreachable
from refine.jobs.queue import redis_connection

# One hash holds all of them, by name.
KEY = "refine:workers"
HEARTBEAT_SECONDS = 15.0
SILENT_AFTER = timedelta(seconds=60)
# How long a process is remembered that was frozen or killed.
REMEMBERED_FOR = timedelta(hours=1)

_LONGEST_NAME = 100
# No page shows more runs of one worker.
_MOST_RUNS = 100

_log = structlog.get_logger(__name__)


class Presence:
    """The heartbeats of this process in Redis."""

    def __init__(self, *, serves_runs: bool, name: str | None = None) -> None:
        self._name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._serves_runs = serves_runs
        self._since = clock.now().timestamp()
        self._next_at = 0.0

    def announce(self, run_ids: Iterable[uuid.UUID] = ()) -> None:
        """Send a heartbeat with the runs in hand; raises Unreachable."""
        about = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": self._since,
            "serves_runs": self._serves_runs,
            "runs": [str(id_) for id_ in run_ids],
        }
        with redis_connection() as connection:
            about["seen_at"] = connection.time()[0]
            connection.hset(KEY, self._name, json.dumps(about))
        self._next_at = time.monotonic() + HEARTBEAT_SECONDS

    def announce_if_due(self, run_ids: Iterable[uuid.UUID] = ()) -> None:
        """Send the next heartbeat if it is time; not while Redis is away."""
        if time.monotonic() < self._next_at:
            return
        try:
            self.announce(run_ids)
        except Unreachable as fault:
            self._next_at = time.monotonic() + HEARTBEAT_SECONDS
            _log.warning("no heartbeat in Redis", fault=str(fault))

    def withdraw(self) -> None:
        """Take the process off the list, when it ends."""
        try:
            with redis_connection() as connection:
                connection.hdel(KEY, self._name)
        except Unreachable:
            return


class WorkerInfo(NamedTuple):
    """A process, and when it was last heard of; ``run_ids`` are the runs that it has in hand."""

    name: str
    host: str
    pid: str
    serves_runs: bool
    since: datetime
    last_seen_at: datetime
    is_live: bool
    run_ids: Sequence[uuid.UUID]


class WorkerList(NamedTuple):
    """All processes that Redis remembers, the most recently seen first."""

    workers: list[WorkerInfo]

    @property
    def live(self) -> list[WorkerInfo]:
        """Those that work on runs, and sent a heartbeat just now."""
        return [each for each in self.workers if each.serves_runs and each.is_live]

    @property
    def silent(self) -> list[WorkerInfo]:
        """Those that worked on runs, and were frozen or killed.

        Not those that were replaced: a worker was started after their last heartbeat.
        """
        started = max((each.since for each in self.live), default=None)
        return [
            each
            for each in self.workers
            if each.serves_runs
            and not each.is_live
            and (started is None or started <= each.last_seen_at)
        ]


def known_workers(connection: Redis) -> WorkerList:
    """Return the processes that announced themselves; forget those that are long gone."""
    with connection.pipeline(transaction=False) as pipeline:
        pipeline.time()
        pipeline.hgetall(KEY)
        (seconds, _), stored = pipeline.execute()
    found, gone = [], []
    for name, about in stored.items():
        info = _read(name, about, seconds)
        if info is None or clock.now() - info.last_seen_at > REMEMBERED_FOR:
            gone.append(name)
        else:
            found.append(info)
    if gone:
        connection.hdel(KEY, *gone)
    return WorkerList(sorted(found, key=lambda each: each.last_seen_at, reverse=True))


def _read(name: bytes, stored: bytes, redis_seconds: int) -> WorkerInfo | None:
    try:
        about: Any = json.loads(stored)
        age = timedelta(seconds=max(0, redis_seconds - int(about["seen_at"])))
        return WorkerInfo(
            name.decode(errors="replace")[:_LONGEST_NAME],
            str(about["host"])[:_LONGEST_NAME],
            str(int(about["pid"])),
            about["serves_runs"] is True,
            datetime.fromtimestamp(float(about["since"]), UTC),
            clock.now() - age,
            is_live=age < SILENT_AFTER,
            run_ids=sorted(uuid.UUID(id_) for id_ in about["runs"][:_MOST_RUNS]),
        )
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError, OSError):
        return None
