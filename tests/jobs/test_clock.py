"""The clock as it is run: a process that keeps one tick in Redis, and whatever happens, ticks."""

import json
import math
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

from refine.embedded import redis_url, valkey
from refine.extensions import db
from refine.jobs import clock
from refine.jobs.queue import TICK, TICKS, JsonJob
from refine.jobs.runs import refine_later
from refine.models import Account, Agent, ClockMark, RefinementSession
from tests import factories, sql
from tests.commands import UNUSED_PORT, eventually, start
from tests.forked import Service, services
from tests.in_redis import is_idle
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow

ENTRIES = Scheduler.scheduled_jobs_key
# RQ needs a second for its thread that listens to commands; a poll of the clock takes five.
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


@pytest.fixture
def account(app: Flask) -> Account:
    """An account whose next slot is far away."""
    made = factories.account(next_due_at=datetime.fromisoformat("2999-01-01T00:00Z"))
    made.schedule = "0 0 1 1 *"
    db.session.commit()
    return made


def an_agent(account: Account, **fields: object) -> Agent:
    owner = factories.agent(account=account, **fields)
    factories.ledger(owner, *[25] * 20)
    db.session.commit()
    return owner


def entries(redis: Redis) -> list[bytes]:
    return list(redis.zrange(ENTRIES, 0, -1))


def has_ticked(after: datetime | None = None) -> bool:
    at = sql.value("SELECT at FROM clock_marks WHERE event = 'tick'")
    return at is not None and (after is None or at > after)


def tick_now(redis: Redis) -> datetime:
    """Have the minute be over; return when the last tick was."""
    at: datetime = sql.value("SELECT at FROM clock_marks WHERE event = 'tick'")
    redis.zadd(ENTRIES, {clock.TICK_ID: time.time()})
    return at


def sessions_of(agent: Agent) -> list[RefinementSession]:
    db.session.rollback()
    db.session.expire_all()
    mine = db.select(RefinementSession).where(RefinementSession.agent_id == agent.id)
    return list(db.session.scalars(mine))


# -- the tick in Redis ----------------------------------------------------------------------------


def test_a_clock_ticks_at_once_and_is_to_tick_every_minute(
    app: Flask, redis: Redis, environ: dict[str, str]
) -> None:
    process = start("clock", environ=environ)
    try:
        eventually(lambda: is_idle(redis) and entries(redis))
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=10)
    finally:
        process.kill()

    job = redis.hgetall("rq:job:tick")
    assert (process.returncode, *said) == (0, "", "")
    assert time.monotonic() - began < SOON_SECONDS
    assert has_ticked()
    assert entries(redis) == [b"tick"]
    assert 0 < redis.zscore(ENTRIES, "tick") - time.time() <= 60
    assert json.loads(zlib.decompress(job[b"data"])) == [TICK, None, [], {}]
    assert json.loads(job[b"meta"]) == {"interval": 60}
    assert (job[b"origin"].decode(), job[b"timeout"]) == (TICKS, b"300")
    assert redis.ttl("rq:job:tick") == -1


def test_a_tick_that_is_due_is_run_and_the_next_one_is_there(
    redis: Redis, begin: Begin, quick: None
) -> None:
    begin("clock")
    eventually(lambda: is_idle(redis) and entries(redis))

    last = tick_now(redis)
    eventually(lambda: has_ticked(after=last))

    eventually(lambda: redis.zscore(ENTRIES, "tick") > time.time() + 30)
    assert entries(redis) == [b"tick"]
    assert redis.ttl("rq:job:tick") == -1


def test_three_starts_leave_one_tick(redis: Redis, begin: Begin, quick: None) -> None:
    for _ in range(3):
        process = begin("clock")
        eventually(lambda: is_idle(redis) and entries(redis))
        process.signal(signal.SIGTERM)
        process.wait()

    assert entries(redis) == [b"tick"]


def test_a_second_clock_leaves_the_tick_alone(redis: Redis, begin: Begin, quick: None) -> None:
    begin("clock")
    eventually(lambda: is_idle(redis) and (redis.zscore(ENTRIES, "tick") or 0) > time.time() + 30)
    due_at = redis.zscore(ENTRIES, "tick")

    second = begin("clock")
    eventually(lambda: is_idle(redis, 2))
    second.signal(signal.SIGTERM)
    second.wait()

    assert entries(redis) == [b"tick"]
    assert redis.zscore(ENTRIES, "tick") == due_at


def test_jobs_of_an_earlier_version_in_the_clocks_queue_are_removed(
    redis: Redis, begin: Begin, quick: None
) -> None:
    left = Scheduler(TICKS, connection=redis, job_class=JsonJob)
    left.schedule(datetime(2020, 1, 1), TICK, interval=60, id="weekly")  # noqa: DTZ001 - its way
    redis.zadd(ENTRIES, {"without a job": 0})

    begin("clock")
    eventually(lambda: is_idle(redis) and b"tick" in entries(redis))

    assert entries(redis) == [b"tick"]


def test_entries_of_another_scheduler_are_left_alone(
    redis: Redis, begin: Begin, quick: None
) -> None:
    others = Scheduler("another", connection=redis)
    others.schedule(datetime(2999, 1, 1), "os.getcwd", interval=60, id="its-own")  # noqa: DTZ001

    begin("clock")
    eventually(lambda: is_idle(redis) and b"tick" in entries(redis))

    assert sorted(entries(redis)) == [b"its-own", b"tick"]


def test_planted_jobs_neither_run_nor_hold_up_the_tick(
    redis: Redis, begin: Begin, quick: None
) -> None:
    others = Scheduler("another", connection=redis)
    for id_, meta in (("pickled", {}), ("imported", {"queue_class_name": "antigravity.x"})):
        others.schedule(datetime(2020, 1, 1), "os.getcwd", id=id_, meta=meta)  # noqa: DTZ001

    begin("clock")
    eventually(lambda: is_idle(redis) and b"tick" in entries(redis))
    before = tick_now(redis)
    eventually(lambda: has_ticked(before))

    assert sorted(entries(redis)) == [b"imported", b"pickled", b"tick"]
    assert redis.llen("rq:queue:another") == 0


@pytest.mark.parametrize(
    "altered",
    [
        {"data": zlib.compress(b'["os.getcwd", null, [], {}]')},
        {"data": b"{"},
        {"success_callback_name": "os.getcwd"},
        {"webhooks": "[]x"},
        {"origin": "another"},
    ],
    ids=lambda altered: next(iter(altered)),
)
def test_an_altered_tick_is_registered_anew(
    redis: Redis, begin: Begin, quick: None, altered: dict[str, bytes]
) -> None:
    begin("clock")
    eventually(lambda: is_idle(redis) and b"tick" in entries(redis))
    redis.hset("rq:job:tick", mapping=altered)
    before = tick_now(redis)

    eventually(lambda: has_ticked(before))

    name, value = next(iter(altered.items()))
    eventually(lambda: redis.hget("rq:job:tick", name) != value)


@pytest.mark.parametrize("forgotten", ["everything", "the entry", "the job"])
def test_a_tick_that_redis_has_forgotten_is_put_back(
    redis: Redis, begin: Begin, quick: None, forgotten: str
) -> None:
    begin("clock")
    eventually(lambda: is_idle(redis) and entries(redis))

    if forgotten == "everything":
        redis.flushall()
    else:
        redis.delete(ENTRIES if forgotten == "the entry" else "rq:job:tick")

    eventually(lambda: entries(redis) == [b"tick"] and redis.exists("rq:job:tick"), seconds=5)
    last = tick_now(redis)
    eventually(lambda: has_ticked(after=last))


def test_a_tick_that_a_wrong_clock_put_off_is_brought_forward(
    redis: Redis, begin: Begin, quick: None
) -> None:
    begin("clock")
    eventually(lambda: is_idle(redis) and entries(redis))

    redis.zadd(ENTRIES, {"tick": time.time() + timedelta(days=1).total_seconds()})

    eventually(lambda: (redis.zscore(ENTRIES, "tick") or math.inf) < time.time() + 61, seconds=5)


def test_redis_is_looked_at_every_few_seconds() -> None:
    poll_seconds = clock.POLL_SECONDS

    assert 1 <= poll_seconds <= 10


# -- what it brings about -------------------------------------------------------------------------


@pytest.mark.parametrize("trigger", ["weekly", "over_budget"])
def test_an_agent_that_is_due_is_queued_and_a_worker_runs_its_session(
    redis: Redis, account: Account, model: ScriptedModel, begin: Begin, trigger: str
) -> None:
    model.say("YES").call("complete", summary="All is well.")
    agent = an_agent(account)
    if trigger == "weekly":
        sql.run("UPDATE accounts SET next_due_at = now() - interval '1 minute'")
    else:
        sql.rewrite("UPDATE agents SET core_token_budget = 1, last_refinement_at = now()")

    begin("clock")
    eventually(lambda: redis.llen("rq:queue:refine-swept") == 1)
    begin("worker", "--burst").wait()

    (session,) = sessions_of(agent)
    assert (session.trigger, session.status) == (trigger, "completed")


def test_two_clocks_and_three_ticks_at_once_make_one_session_for_each_agent(
    redis: Redis, account: Account, begin: Begin, quick: None
) -> None:
    agents = [an_agent(account) for _ in range(3)]
    sql.run("UPDATE accounts SET next_due_at = now() - interval '1 minute'")

    clocks = [begin("clock") for _ in range(2)]
    ticks = [begin("tick") for _ in range(3)]
    codes = [tick.wait() for tick in ticks]
    eventually(lambda: is_idle(redis, len(clocks)))
    last = tick_now(redis)
    eventually(lambda: has_ticked(after=last))

    assert codes == [0, 0, 0]
    assert [len(sessions_of(agent)) for agent in agents] == [1, 1, 1]
    assert entries(redis) == [b"tick"]


def test_a_session_that_waits_in_the_database_alone_is_handed_over(
    redis: Redis, account: Account, begin: Begin, quick: None
) -> None:
    session = refine_later(an_agent(account), "cli")
    redis.flushall()
    sql.run("UPDATE refinement_sessions SET dispatched_at = now() - interval '31 seconds'")

    begin("clock")

    eventually(lambda: redis.lrange("rq:queue:refine-asked", 0, -1) == [str(session.id).encode()])


# -- what it outlives, and its end ----------------------------------------------------------------


def test_a_clock_whose_database_connections_were_cut_ticks_on(
    redis: Redis, begin: Begin, quick: None
) -> None:
    begin("clock")
    eventually(lambda: is_idle(redis) and entries(redis))
    sql.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state = 'idle'")
    db.engine.dispose()

    last = tick_now(redis)

    eventually(lambda: has_ticked(after=last))


def test_a_clock_outlives_redis_and_ticks_when_it_is_back(begin: Begin, quick: None) -> None:
    # a short path: Valkey's socket has little room for it
    with tempfile.TemporaryDirectory(prefix="refine-clock-") as folder, ExitStack() as servers:
        server = servers.enter_context(valkey.running(Path(folder)))
        with Redis.from_url(redis_url(Path(folder))) as redis:
            process = begin("clock", REDIS_URL=redis_url(Path(folder)))
            eventually(lambda: is_idle(redis) and entries(redis))
            server.kill()
            server.wait()
            eventually(lambda: process.lines("scheduler loop failed"))
            server = servers.enter_context(valkey.running(Path(folder)))
            eventually(lambda: entries(redis))
            last = tick_now(redis)
            eventually(lambda: has_ticked(after=last))
            process.signal(signal.SIGTERM)
            code = process.wait()

    assert code == 0


def test_without_redis_a_clock_ticks_once_and_says_what_is_missing(begin: Begin) -> None:
    process = begin("clock", REDIS_URL=f"redis://127.0.0.1:{UNUSED_PORT}/0")

    code = process.wait()

    assert code == 1
    assert process.said.splitlines()[-1] == (
        "refine: Redis does not answer at REDIS_URL; start it, or fix REDIS_URL "
        "(ConnectionRefusedError)"
    )
    assert ClockMark.age("tick") is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_clock_asked_to_end_ends_at_once(
    redis: Redis, begin: Begin, number: signal.Signals
) -> None:
    process = begin("clock")
    eventually(lambda: is_idle(redis) and entries(redis))

    process.signal(number)
    code = process.wait(SOON_SECONDS)

    assert code == 0
    assert redis.smembers("rq:workers") == set()
    assert not redis.exists(Scheduler.scheduler_lock_key)
    assert process.said == ""
