"""What Redis knows of the workers, and which of them sent no heartbeat."""

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from flask import Flask
from redis import Redis

from refine.health import queue_check
from refine.jobs.queue import AUTOMATIC, QUEUES, REQUESTED, TICKS, enqueue, jobs_of, queue
from refine.jobs.worker import RefineWorker
from refine.jobs.workers import REMEMBERED_FOR, SILENT_AFTER, WorkerList, known_workers
from refine.models import RefinementSession
from tests import factories
from tests.in_redis import let_pass

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MOMENT = timedelta(seconds=20)

Register = Callable[..., RefineWorker]


@pytest.fixture(autouse=True)
def now(app: Flask, redis: Redis) -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


@pytest.fixture
def register(redis: Redis) -> Register:
    """Registers a worker, as it registers itself when it starts."""

    def started(name: str, queues: tuple[str, ...] = QUEUES) -> RefineWorker:
        worker = RefineWorker([queue(each, redis) for each in queues], name=name, connection=redis)
        worker.register_birth()
        return worker

    return started


def names(found: WorkerList) -> list[str]:
    return [each.name for each in found.workers]


def test_a_worker_tells_its_name_host_and_process(redis: Redis, register: Register) -> None:
    worker = register("ada")

    (seen,) = known_workers(redis).workers

    assert (seen.name, seen.host, seen.pid) == ("ada", worker.hostname, str(worker.pid))
    assert (seen.since, seen.is_live) == (NOW, True)
    assert timedelta(0) <= NOW - seen.last_seen_at < SILENT_AFTER


def test_a_worker_without_a_sign_of_life_is_silent_and_no_live_one(
    redis: Redis, register: Register, now: time_machine.Traveller
) -> None:
    frozen, alive = register("frozen"), register("alive")
    now.shift(SILENT_AFTER + MOMENT)
    for worker in (frozen, alive):
        let_pass(redis, worker.key, SILENT_AFTER)
    alive.heartbeat()

    found = known_workers(redis)

    assert names(found) == ["alive", "frozen"]
    assert [each.name for each in found.live] == ["alive"]
    assert [each.name for each in found.silent] == ["frozen"]


def test_a_silent_worker_that_was_replaced_is_missed_no_more(
    redis: Redis, register: Register, now: time_machine.Traveller
) -> None:
    killed = register("killed")
    now.shift(SILENT_AFTER)
    let_pass(redis, killed.key, SILENT_AFTER)
    register("successor")

    found = known_workers(redis)

    assert names(found) == ["successor", "killed"]
    assert found.silent == []


@pytest.mark.parametrize("apart", [timedelta(minutes=-5), timedelta(minutes=5)])
def test_a_worker_whose_clock_is_wrong_is_live_nevertheless(
    redis: Redis, register: Register, now: time_machine.Traveller, apart: timedelta
) -> None:
    now.shift(apart)
    register("ada").heartbeat()
    now.shift(-apart)

    found = known_workers(redis)

    assert [each.name for each in found.live] == ["ada"]


def test_redis_remembers_a_silent_worker_for_an_hour(redis: Redis, register: Register) -> None:
    worker = register("ada")

    worker.heartbeat()
    by_itself = redis.ttl(worker.key)
    worker.heartbeat(90)

    assert by_itself == redis.ttl(worker.key) == REMEMBERED_FOR.total_seconds()


def test_the_clock_is_no_worker_of_runs(redis: Redis, register: Register) -> None:
    register("clock", (TICKS,))

    found = known_workers(redis)

    assert [each.serves_runs for each in found.workers] == [False]
    assert (found.live, found.silent) == ([], [])


def test_the_runs_that_a_worker_has_in_hand_are_known(redis: Redis, register: Register) -> None:
    worker = register("ada")
    sessions = [
        RefinementSession.queue(factories.agent("one"), trigger)  # type: ignore[arg-type]
        for trigger in ("manual", "weekly")
    ]
    enqueue(jobs_of(sessions), redis)
    for name, session in zip((REQUESTED, AUTOMATIC), sessions, strict=True):
        job = queue(name, redis).fetch_job(str(session.id))
        assert job is not None
        worker.prepare_execution(job)
        redis.hset(job.key, "worker_name", "ada")

    told = [each.run_ids for each in known_workers(redis, with_runs=True).workers]

    assert told == [sorted(each.id for each in sessions)]
    assert [each.run_ids for each in known_workers(redis).workers] == [[]]


def test_unreadable_workers_are_left_out(redis: Redis, register: Register) -> None:
    worker = register("ada")
    redis.hset(worker.key, mapping={"hostname": b"\xff", "current_job": "no id", "birth": "never"})
    redis.hset("rq:worker:odd", "hostname", "never forgotten")
    redis.set("rq:worker:no-hash", "x", ex=REMEMBERED_FOR)
    redis.sadd(f"rq:workers:{AUTOMATIC}", "rq:worker:odd", "rq:worker:no-hash", "rq:worker:gone")
    redis.zadd(f"rq:wip:{AUTOMATIC}", {"no id:1": 1, f"{uuid.uuid4()}:1": 2})
    redis.set(f"rq:wip:{REQUESTED}", "x")

    (seen,) = known_workers(redis, with_runs=True).workers

    assert (seen.name, seen.host, seen.since, seen.run_ids) == ("ada", "�", None, [])


def test_the_queue_check_reports_a_frozen_worker(redis: Redis, register: Register) -> None:
    frozen = register("frozen")
    let_pass(redis, frozen.key, SILENT_AFTER - MOMENT)
    before = queue_check()
    let_pass(redis, frozen.key, timedelta(minutes=2))

    after = queue_check()

    assert (before.is_ok, before.detail) == (True, "1 worker, 0 sessions waiting")
    assert after.problem == (
        "0 workers, 0 sessions waiting; 1 worker without a heartbeat for 2 minutes: restart it"
    )
