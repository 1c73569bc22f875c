"""What Redis knows of the workers, and which of them sent no heartbeat."""

import json
import os
import socket
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from flask import Flask
from redis import Redis

from refine.health import queue_check
from refine.jobs.workers import (
    KEY,
    REMEMBERED_FOR,
    SILENT_AFTER,
    Presence,
    WorkerList,
    known_workers,
)
from refine.models import RefinementSession
from tests import factories
from tests.in_redis import let_pass

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MOMENT = timedelta(seconds=20)


@pytest.fixture(autouse=True)
def now(app: Flask, redis: Redis) -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


def begun(*run_ids: uuid.UUID, serves_runs: bool = True) -> Presence:
    presence = Presence(serves_runs=serves_runs)
    presence.announce(run_ids)
    return presence


def pids(found: WorkerList) -> list[str]:
    return [each.pid for each in found.workers]


def test_a_worker_tells_its_name_host_process_and_runs(redis: Redis) -> None:
    run_id = uuid.uuid4()

    begun(run_id)

    (seen,) = known_workers(redis).workers
    assert seen.name.startswith(f"{socket.gethostname()}-{os.getpid()}-")
    assert (seen.host, seen.pid) == (socket.gethostname(), str(os.getpid()))
    assert (seen.since, seen.is_live, seen.run_ids) == (NOW, True, [run_id])
    assert timedelta(0) <= NOW - seen.last_seen_at < SILENT_AFTER


@pytest.mark.parametrize("serves_runs", [True, False])
def test_a_worker_without_a_heartbeat_is_silent_unless_it_is_a_clock(
    redis: Redis, serves_runs: bool
) -> None:
    begun(serves_runs=serves_runs)
    assert len(known_workers(redis).live) == serves_runs

    let_pass(redis, SILENT_AFTER)

    found = known_workers(redis)
    assert (found.live, len(found.silent)) == ([], int(serves_runs))


def test_a_worker_that_was_replaced_is_not_silent(
    redis: Redis, now: time_machine.Traveller
) -> None:
    begun()
    let_pass(redis, SILENT_AFTER + MOMENT)
    now.shift(MOMENT)

    begun()

    found = known_workers(redis)
    assert (len(found.workers), len(found.live), found.silent) == (2, 1, [])


def test_a_heartbeat_counts_again_and_an_end_is_told(redis: Redis) -> None:
    presence = begun()
    let_pass(redis, SILENT_AFTER)

    presence.announce_if_due()
    is_early = known_workers(redis).live == []
    redis.flushall()
    presence.announce()
    after_flush = len(known_workers(redis).live)
    presence.withdraw()

    assert (is_early, after_flush) == (True, 1)
    assert known_workers(redis).workers == []


def test_a_worker_that_is_long_gone_is_forgotten(redis: Redis) -> None:
    begun()
    let_pass(redis, REMEMBERED_FOR + MOMENT)

    assert known_workers(redis).workers == []
    assert redis.hgetall(KEY) == {}


@pytest.mark.parametrize(
    "planted",
    [b"\xff", b"[]", b"{}", b'{"seen_at": "soon"}', json.dumps({"seen_at": 1e400}).encode()],
)
def test_what_cannot_be_read_counts_as_missing(redis: Redis, planted: bytes) -> None:
    redis.hset(KEY, "planted", planted)
    begun()

    assert len(known_workers(redis).workers) == 1


def test_the_check_of_the_queue_names_silent_workers(redis: Redis) -> None:
    RefinementSession.queue(factories.agent("a memory"), "manual")
    none = queue_check()
    begun()
    live = queue_check()
    let_pass(redis, SILENT_AFTER + MOMENT)
    silent = queue_check()

    assert none.problem == "0 workers, 1 session waiting: start `refine worker`"
    assert live.problem is None
    assert silent.problem is not None
    assert "1 worker without a heartbeat for" in silent.problem
