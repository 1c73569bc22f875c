"""The workers as Redis knows them: their names, hosts, jobs, and their last heartbeat.

How old a heartbeat is follows from when Redis will forget the worker: by the clock of Redis alone,
because those of the workers' hosts may differ. Anybody who can write to Redis can write anything:
what cannot be read counts as missing.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from redis import Redis
from rq.job import Job
from rq.registry import StartedJobRegistry
from rq.utils import as_text, utcparse
from rq.worker_registration import WORKERS_BY_QUEUE_KEY

from refine import clock
from refine.jobs.queue import AUTOMATIC, RUN_QUEUES, TICKS

# Workers send a heartbeat to Redis at least every 45 seconds.
SILENT_AFTER = timedelta(seconds=60)
# How long Redis remembers a worker that was frozen or killed.
REMEMBERED_FOR = timedelta(hours=1)

_KEY = "rq:worker:"
_FIELDS = ("birth", "hostname", "pid", "current_job")
_LONGEST_NAME = 100
# No page needs more of what Redis holds.
_MOST = 200


class WorkerInfo(NamedTuple):
    """A worker, and when it was last heard of; ``run_ids`` are the runs that it has in hand."""

    name: str
    host: str
    pid: str
    serves_runs: bool
    since: datetime | None
    last_seen_at: datetime
    is_live: bool
    run_ids: Sequence[uuid.UUID] = ()


class WorkerList(NamedTuple):
    """All workers that Redis remembers, the most recently seen first."""

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
        started = max((each.since for each in self.live if each.since is not None), default=None)
        return [
            each
            for each in self.workers
            if each.serves_runs
            and not each.is_live
            and (started is None or started <= each.last_seen_at)
        ]


def known_workers(connection: Redis, *, with_runs: bool = False) -> WorkerList:
    """Return the workers; with the ids of their runs if a page shows them."""
    with connection.pipeline(transaction=False) as pipeline:
        for name in (AUTOMATIC, TICKS):
            pipeline.smembers(WORKERS_BY_QUEUE_KEY % name)
        run_keys, clock_keys = (set(keys) for keys in pipeline.execute())
        keys = sorted(run_keys) + sorted(clock_keys - run_keys)
        for key in keys:
            pipeline.pttl(key)
            pipeline.hmget(key, _FIELDS)
        known = pipeline.execute(raise_on_error=False)
    runs = _runs_in_hand(connection) if with_runs else {}
    seen = [
        _seen(key, left, fields, runs, serves_runs=key in run_keys)
        for key, left, fields in zip(keys, known[::2], known[1::2], strict=True)
    ]
    found = [each for each in seen if each is not None]
    return WorkerList(sorted(found, key=lambda each: each.last_seen_at, reverse=True))


def live_workers(connection: Redis) -> int:
    """Return how many workers of runs sent a heartbeat recently."""
    return len(known_workers(connection).live)


def _seen(
    key: bytes,
    left_milliseconds: Any,
    fields: Any,
    runs: Mapping[str, Sequence[uuid.UUID]],
    *,
    serves_runs: bool,
) -> WorkerInfo | None:
    # Redis says -1 for an entry that never expires: no worker wrote it
    if not isinstance(fields, list) or not isinstance(left_milliseconds, int):
        return None
    if left_milliseconds < 0:
        return None
    name = _text_of(key).removeprefix(_KEY)
    birth, host, pid, current = fields
    age = max(timedelta(0), REMEMBERED_FOR - timedelta(milliseconds=left_milliseconds))
    in_hand = {*runs.get(name, ()), *_ids_of([current])}
    return WorkerInfo(
        name,
        _text_of(host),
        _text_of(pid),
        serves_runs,
        _time_of(birth),
        clock.now() - age,
        is_live=age < SILENT_AFTER,
        run_ids=sorted(in_hand),
    )


def _runs_in_hand(connection: Redis) -> dict[str, list[uuid.UUID]]:
    """Return the runs that workers began and have not ended, by the worker's name."""
    with connection.pipeline(transaction=False) as pipeline:
        for name in RUN_QUEUES:
            registry = StartedJobRegistry(name, connection=connection)
            pipeline.zrange(registry.key, 0, _MOST)
        started = pipeline.execute(raise_on_error=False)
        entries = [each for listed in started if isinstance(listed, list) for each in listed]
        ids = _ids_of(entry.partition(b":")[0] for entry in entries)
        for id_ in ids:
            pipeline.hget(Job.key_for(str(id_)), "worker_name")
        names = pipeline.execute(raise_on_error=False)
    in_hand = defaultdict(list)
    for id_, name in zip(ids, names, strict=True):
        in_hand[_text_of(name)].append(id_)
    return in_hand


def _ids_of(stored: Iterable[Any]) -> list[uuid.UUID]:
    found = []
    for each in stored:
        try:
            found.append(uuid.UUID(as_text(each)))
        except (ValueError, AttributeError):
            continue
    return found


def _time_of(stored: Any) -> datetime | None:
    try:
        return utcparse(as_text(stored))
    except (ValueError, AttributeError):
        return None


def _text_of(stored: Any) -> str:
    """Return a name as a page may show it; empty if there is none."""
    if not isinstance(stored, bytes):
        return ""
    return stored.decode(errors="replace")[:_LONGEST_NAME]
