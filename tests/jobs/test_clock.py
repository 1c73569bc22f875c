"""The clock: rq-scheduler holds one tick, and whatever happens, it ticks."""

import json
import signal
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from flask import Flask
from redis import Redis
from rq_scheduler import Scheduler

from refine import clock as time_source
from refine.embedded import redis_url, valkey
from refine.jobs import clock
from refine.jobs.clock import TICK, TICK_ID, schedule
from refine.jobs.queue import TICKS, JsonJob, queue
from refine.models import PeriodicWork
from tests import sql
from tests.commands import UNUSED_PORT, Service, eventually, services
from tests.scripted_model import ScriptedModel

ENTRIES = Scheduler.scheduled_jobs_key
SOON_SECONDS = 4.0

Begin = Callable[..., Service]


@pytest.fixture
def begin(
    app: Flask, redis: Redis, environ: dict[str, str], model: ScriptedModel, tmp_path: Path
) -> Iterator[Begin]:
    with services({**environ, "OPENROUTER_BASE_URL": model.base_url}, tmp_path) as begun:
        yield begun


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks look often for what is due."""
    monkeypatch.setattr(clock, "POLL_SECONDS", 0.1)


def has_ticked(after: datetime | None = None) -> bool:
    at = sql.value("SELECT at FROM periodic_work WHERE event = 'tick'")
    return at is not None and (after is None or at > after)


def test_the_tick_is_queued_at_once_and_then_every_minute(app, redis):
    for _ in range(3):
        schedule()

    job = redis.hgetall("rq:job:tick")
    assert queue(TICKS, redis).job_ids == [TICK_ID]
    assert redis.zrange(ENTRIES, 0, -1) == [b"tick"]
    assert 50 < redis.zscore(ENTRIES, TICK_ID) - time.time() <= 60
    assert json.loads(zlib.decompress(job[b"data"])) == [TICK, None, [], {}]
    assert json.loads(job[b"meta"]) == {"interval": 60}
    assert redis.ttl("rq:job:tick") == -1


def test_a_due_tick_is_queued_and_put_off_by_a_minute(app, redis):
    schedule()
    redis.delete(queue(TICKS, redis).key)
    redis.zadd(ENTRIES, {TICK_ID: time.time() - 1})

    schedule()

    assert queue(TICKS, redis).job_ids == [TICK_ID]
    assert redis.zscore(ENTRIES, TICK_ID) > time.time() + 50


@pytest.mark.parametrize(
    "forget",
    [
        lambda redis: redis.flushall(),
        lambda redis: redis.delete(ENTRIES),
        lambda redis: redis.delete("rq:job:tick"),
        lambda redis: redis.hset("rq:job:tick", mapping={"meta": b"\x80pickle", "data": b"x"}),
        lambda redis: redis.hset("rq:job:tick", "success_callback_name", "os.abort"),
    ],
    ids=["everything", "the entry", "the job", "its meaning", "nothing, but adds a callback"],
)
def test_a_tick_that_redis_forgot_or_altered_is_put_back(app, redis, forget):
    schedule()
    whole = redis.hgetall("rq:job:tick")
    forget(redis)

    schedule()

    job = redis.hgetall("rq:job:tick")
    same = ("data", "meta", "origin", "description")
    assert job.keys() <= whole.keys() | {b"enqueued_at"}
    assert [job[name.encode()] for name in same] == [whole[name.encode()] for name in same]
    assert redis.zrange(ENTRIES, 0, -1) == [b"tick"]


def test_a_tick_that_a_wrong_clock_put_off_is_brought_forward(app, redis):
    with time_source.ahead(timedelta(days=3)):
        schedule()
    redis.delete(queue(TICKS, redis).key)
    redis.zadd(ENTRIES, {TICK_ID: time.time() + 86_400})

    schedule()

    assert queue(TICKS, redis).job_ids == [TICK_ID]


def test_entries_of_others_are_neither_read_nor_queued(app, redis):
    redis.hset("rq:job:theirs", mapping={"data": b"cos\nabort\n(tR.", "origin": TICKS})
    redis.zadd(ENTRIES, {"theirs": time.time() - 5})

    schedule()

    assert queue(TICKS, redis).job_ids == [TICK_ID]
    assert redis.zscore(ENTRIES, "theirs") is not None


def test_a_clock_leaves_the_lock_of_another_clock_alone(app, redis):
    with_lock = Scheduler(TICKS, connection=redis, job_class=JsonJob)
    assert with_lock.acquire_lock()

    schedule()

    assert not redis.exists(ENTRIES)


@pytest.mark.slow
def test_a_clock_ticks_on_without_redis_and_when_it_is_back(app, begin, quick, monkeypatch):
    monkeypatch.setattr(clock, "INTERVAL", timedelta(seconds=1))
    # a short path: Valkey's socket has little room for it
    with tempfile.TemporaryDirectory(prefix="refine-clock-") as folder, ExitStack() as servers:
        server = servers.enter_context(valkey.running(Path(folder)))
        with Redis.from_url(redis_url(Path(folder))) as redis:
            process = begin("clock", REDIS_URL=redis_url(Path(folder)))
            eventually(lambda: redis.exists(ENTRIES) and has_ticked())
            server.kill()
            server.wait()
            eventually(lambda: process.lines("the clock waits for Redis"))
            away = sql.value("SELECT at FROM periodic_work WHERE event = 'tick'")
            eventually(lambda: has_ticked(after=away))
            servers.enter_context(valkey.running(Path(folder)))
            eventually(lambda: redis.exists(ENTRIES))
            process.signal(signal.SIGTERM)

            assert process.wait() == 0


def test_a_clock_that_starts_without_redis_names_the_problem(begin):
    process = begin("clock", REDIS_URL=f"redis://127.0.0.1:{UNUSED_PORT}/0")

    assert process.wait() == 1
    assert process.said.splitlines()[-1] == (
        "refine: Redis does not answer at REDIS_URL; start it, or fix REDIS_URL "
        "(ConnectionRefusedError)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_clock_asked_to_end_ends_soon(redis, begin, number):
    process = begin("clock")
    eventually(lambda: redis.exists(ENTRIES) and has_ticked())

    process.signal(number)

    assert process.wait(SOON_SECONDS) == 0
    assert not redis.exists(Scheduler.scheduler_lock_key)
    assert process.said == ""
    assert PeriodicWork.age("tick") is not None
