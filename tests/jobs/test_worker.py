"""Workers: they work on what waits, several at once, obey signals and leave nothing behind."""

import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from flask import Flask
from redis import Redis
from sqlalchemy import inspect

from refine.embedded import redis_url, valkey
from refine.extensions import db
from refine.jobs import worker as workers
from refine.jobs.clock import TICK
from refine.jobs.queue import QUEUES, RUNS, TICKS, Waiting, queue, refine_later
from refine.jobs.tick import run_tick
from refine.jobs.worker import ConcurrentRunner, work
from refine.models import Agent, PeriodicWork, RefinementSession
from refine.models.runs.run import LOST_AFTER
from refine.settings import Settings
from tests import factories, sql
from tests.commands import UNUSED_PORT, Service, eventually, services, start
from tests.in_redis import everything_in
from tests.interleaving.model import PlayedModel
from tests.scripted_model import ScriptedModel

YES = "YES, gladly."

Begin = Callable[..., Service]


@pytest.fixture
def agent(app: Flask) -> Agent:
    return another_agent(system_prompt="You are a canary.")


@pytest.fixture
def scripted(environ: dict[str, str], model: ScriptedModel) -> dict[str, str]:
    """The environment of a worker whose agents the scripted model answers for."""
    return {**environ, "OPENROUTER_BASE_URL": model.base_url}


@pytest.fixture
def answered(
    app: Flask, redis: Redis, scripted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scripted model answers for agents in this process."""
    monkeypatch.setitem(app.extensions, "refine.settings", Settings.from_environ(scripted))


@pytest.fixture
def begin(app: Flask, redis: Redis, scripted: dict[str, str], tmp_path: Path) -> Iterator[Begin]:
    with services(scripted, tmp_path) as begun:
        yield begun


@pytest.fixture
def waiting(model: ScriptedModel) -> Iterator[threading.Event]:
    """Holds the model's last scripted answer back until it is set."""
    answered = threading.Event()
    yield answered
    answered.set()


def another_agent(**fields: object) -> Agent:
    owner = factories.agent(**fields)
    factories.ledger(owner, *[25] * 19)
    factories.memory(owner, "the canary sings at dawn")
    db.session.commit()
    return owner


def outcome_of(session: RefinementSession) -> tuple[str, str | None]:
    db.session.rollback()
    found = db.session.get_one(RefinementSession, inspect(session).identity, populate_existing=True)
    return found.status, found.error_kind


def has_looked() -> bool:
    """Whether a worker has begun to look for runs."""
    return sql.value("SELECT at FROM periodic_work WHERE event = 'worker'") is not None


def is_over(session: RefinementSession) -> bool:
    return outcome_of(session)[0] not in ("queued", "running")


def grow_silent(session: RefinementSession) -> None:
    """Make the last heartbeat so old that its worker counts as lost."""
    sql.run(
        "UPDATE refinement_sessions "
        f"SET heartbeat_at = heartbeat_at - interval '{LOST_AFTER.seconds + 1} seconds' "
        f"WHERE id = '{session.id}'"
    )


# -- in this process -------------------------------------------------------------------------------


def test_a_burst_ends_when_nothing_waits_and_leaves_nothing_in_redis(answered, redis, agent, model):
    model.http(401).say(YES).call("complete", summary="All is well.")
    failed = refine_later(agent, "api")
    completed = refine_later(another_agent(), "weekly")
    db.session.rollback()

    work(burst=True)

    assert {outcome_of(failed)[0], outcome_of(completed)[0]} == {"failed", "completed"}
    assert [queue(name, redis).job_ids for name in QUEUES] == [[]] * len(QUEUES)
    assert redis.keys("rq:job:*") == []
    assert b"canary" not in everything_in(redis)


def test_a_session_that_redis_lost_is_found_in_the_database(answered, redis, agent, model):
    model.say(YES).call("complete", summary="All is well.")
    session = refine_later(agent, "cli")
    redis.flushall()

    work(burst=True)

    assert outcome_of(session) == ("completed", None)


@pytest.mark.parametrize("planted", ["os.mkdir", "\xff", str(uuid.UUID(int=7))])
def test_entries_planted_in_redis_are_not_run_and_hold_up_nothing(
    answered, redis, agent, model, planted
):
    model.say(YES).call("complete", summary="All is well.")
    redis.rpush(f"rq:queue:{RUNS}", planted)
    redis.hset(f"rq:job:{planted}", "data", b"cos\nmkdir\n(S'x'\ntR.")
    session = refine_later(agent, "cli")

    work(burst=True)

    assert outcome_of(session) == ("completed", None)
    assert not Path("x").exists()


def test_a_session_that_cannot_be_claimed_keeps_no_other_waiting(answered, redis, agent, model):
    model.say(YES).call("complete", summary="All is well.")
    altered = refine_later(agent, "api")
    session = refine_later(another_agent(), "api")
    sql.run(f"UPDATE refinement_sessions SET threshold = 0.1 WHERE id = '{altered.id}'")

    work(burst=True)

    assert outcome_of(session) == ("completed", None)


def test_a_worker_ticks_if_a_tick_is_queued(answered, redis):
    queue(TICKS, redis).enqueue_call(TICK)

    work(burst=True)

    assert PeriodicWork.age("tick") is not None


@contextmanager
def held_runs(app: Flask, threads: int) -> Iterator[tuple[ConcurrentRunner, list[Waiting]]]:
    """A runner whose runs last until the end of the block, and what it has begun."""
    begun: list[Waiting] = []
    over = threading.Event()

    def hold(run: Waiting, _lease_token: uuid.UUID) -> None:
        begun.append(run)
        over.wait(20)

    runner = ConcurrentRunner(threads, hold)
    try:
        yield runner, begun
    finally:
        over.set()
        while not runner.is_idle:
            runner.await_end(1)


def test_automatic_runs_leave_one_thread_free_for_requested_ones(app, redis):
    for _ in range(4):
        refine_later(factories.agent("a memory"), "weekly")

    with held_runs(app, 3) as (runner, _):
        while runner.begin_next():
            pass
        still_free = runner.free
        refine_later(factories.agent("a memory"), "manual")
        runner.begin_next()

        assert (still_free, runner.free) == (1, 0)


def test_a_single_thread_takes_automatic_runs_too(app, redis):
    refine_later(factories.agent("a memory"), "weekly")

    with held_runs(app, 1) as (runner, _):
        begun = [runner.begin_next(), runner.begin_next()]

        assert (begun, runner.free) == ([True, False], 0)


def test_a_worker_begins_one_run_at_a_time(app, redis):
    for _ in range(3):
        refine_later(factories.agent("a memory"), "manual")

    with held_runs(app, 5) as (runner, _):
        runner.begin_next()

        assert runner.free == 4


def test_runs_wait_for_a_database_of_this_version(app, redis):
    refine_later(factories.agent("a memory"), "cli")

    with held_runs(app, 1) as (runner, begun):
        sql.run("UPDATE alembic_version SET version_num = 'other'")
        app.extensions.pop("refine.schema_version", None)
        runner.begin_next()
        sql.run("UPDATE alembic_version SET version_num = '1001'")

        assert begun == []


# -- as processes ----------------------------------------------------------------------------------


class Consenting(PlayedModel):
    """Consents, and completes each session as soon as it may."""

    def __init__(self) -> None:
        super().__init__(Random)
        self.asked = 0
        self.may_complete = threading.Event()

    def _play(self, asked: dict[str, Any]) -> None:
        self.asked += 1
        if all(each["role"] != "assistant" for each in asked["messages"]):
            self.say(YES)
            return
        self.call("complete", summary="Done.").meanwhile(lambda: self.may_complete.wait(30))


def test_a_worker_without_redis_says_so_in_one_line(begin):
    worker = begin("worker", REDIS_URL=f"redis://127.0.0.1:{UNUSED_PORT}/0")

    assert worker.wait() == 1
    assert worker.said.splitlines() == [
        "refine: Redis does not answer at REDIS_URL; start it, or fix REDIS_URL "
        "(ConnectionRefusedError)"
    ]


@pytest.mark.slow
def test_two_workers_run_a_session_once(redis, agent, model, begin, waiting):
    model.say(YES).meanwhile(lambda: waiting.wait(20))
    model.call("complete", summary="All is well.")
    session = refine_later(agent, "cli")
    first = begin("worker", "--burst")
    eventually(lambda: len(model.requests) == 1)
    redis.rpush(f"rq:queue:{RUNS}", str(session.id))

    second = begin("worker", "--burst")
    second.wait()
    waiting.set()

    assert (first.wait(), second.code) == (0, 0)
    assert outcome_of(session) == ("completed", None)
    assert len(model.requests) == 2


@pytest.mark.slow
def test_a_worker_outlives_redis_and_works_without_it(agent, model, begin, waiting):
    model.say(YES).meanwhile(lambda: waiting.wait(20))
    model.call("complete", summary="All is well.").http(401)

    # Valkey's socket needs a short path
    with tempfile.TemporaryDirectory(prefix="refine-worker-") as folder, ExitStack() as servers:
        url = redis_url(Path(folder))
        server = servers.enter_context(valkey.running(Path(folder)))
        worker = begin("worker", REDIS_URL=url)
        eventually(has_looked)
        running = refine_later(agent, "cli")
        eventually(lambda: len(model.requests) == 1)
        server.kill()
        server.wait()
        later = refine_later(another_agent(), "cli")
        waiting.set()
        eventually(lambda: is_over(running) and is_over(later))
        servers.enter_context(valkey.running(Path(folder)))
        worker.signal(signal.SIGTERM)
        code = worker.wait()

    assert (outcome_of(running)[0], outcome_of(later)[0]) == ("completed", "failed")
    assert code == 0


@pytest.mark.slow
def test_a_lost_worker_can_change_nothing_more(agent, model, begin, waiting):
    kept = [memory.id for memory in db.session.scalars(agent.ledger.core())]
    model.say(YES).call("delete", id=kept[0]).meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    worker = begin("worker", "--burst")
    eventually(lambda: len(model.requests) == 2)
    worker.signal(signal.SIGSTOP)
    grow_silent(session)
    ticked = run_tick()

    waiting.set()
    worker.signal(signal.SIGCONT)

    assert (ticked.lost, worker.wait()) == (1, 0)
    assert outcome_of(session) == ("failed", "worker_lost")
    assert [memory.id for memory in db.session.scalars(agent.ledger.core())] == kept
    assert len(model.requests) == 2


@pytest.mark.slow
def test_after_a_workers_outage_no_job_has_failed_and_no_traceback_is_logged(
    begin, redis, app, environ
):
    with Consenting() as model:
        own = {"OPENROUTER_BASE_URL": model.base_url, "REFINE_CONCURRENCY": "10"}
        lost = begin("worker", **own)
        sessions = [refine_later(another_agent(), "api") for _ in range(10)]
        eventually(lambda: model.asked == 20)
        lost.kill()
        for session in sessions:
            grow_silent(session)
        run_tick()
        later = [refine_later(session.agent, "api") for session in sessions]
        model.may_complete.set()
        worker = begin("worker", **own)
        eventually(lambda: all(map(is_over, later)))
        worker.signal(signal.SIGTERM)
        worker.wait()

    info = [sys.executable, "-m", "rq.cli", "info", "--by-queue", "--url", environ["REDIS_URL"]]
    told = subprocess.run(info, capture_output=True, text=True, check=True).stdout
    assert {outcome_of(session) for session in sessions} == {("failed", "worker_lost")}
    assert {outcome_of(session) for session in later} == {("completed", None)}
    assert not re.findall(r"[1-9]\d* (?:failed|executing)", told), told
    assert "Traceback" not in lost.said + worker.said


# -- being asked to stop ---------------------------------------------------------------------------


@pytest.fixture
def worker(redis: Redis, scripted: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """The command itself, in the end killed."""
    process = start("worker", environ=scripted)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.slow
def test_a_stopped_worker_leaves_its_session_to_the_next(
    worker, begin, redis, agent, model, waiting
):
    first = db.session.scalars(agent.ledger.core()).all()[0].id
    model.say(YES).call("delete", id=first)
    model.say("too late").meanwhile(lambda: waiting.wait(30))
    session = refine_later(agent, "cli")
    eventually(lambda: len(model.requests) == 3)
    began = time.monotonic()

    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=10)

    assert time.monotonic() - began < 10
    assert worker.returncode == 0
    assert outcome_of(session) == ("queued", None)
    assert queue(RUNS, redis).job_ids == [str(session.id)]
    model.call("complete", summary="One less.")
    assert begin("worker", "--burst").wait() == 0
    assert outcome_of(session) == ("completed", None)
    assert (session.mutation_count, len(model.requests)) == (1, 4)


@pytest.mark.slow
def test_two_workers_share_what_waits_and_one_takes_over_all_of_the_other(begin, redis, app):
    with Consenting() as model:
        own = {"OPENROUTER_BASE_URL": model.base_url, "REFINE_CONCURRENCY": "10"}
        workers = [begin("worker", **own) for _ in range(2)]
        eventually(lambda: len(redis.client_list()) > 2)
        sessions = [refine_later(another_agent(), "api") for _ in range(10)]
        eventually(lambda: model.asked == 20)

        workers[0].signal(signal.SIGTERM)
        code = workers[0].wait()
        handed_back = sql.value("SELECT sum(handed_back) FROM refinement_sessions")
        eventually(lambda: model.asked == 20 + handed_back)
        model.may_complete.set()
        eventually(lambda: all(map(is_over, sessions)))

    assert code == 0
    assert 2 <= handed_back <= 8
    assert {outcome_of(session) for session in sessions} == {("completed", None)}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_an_idle_worker_stops_soon(begin, redis, number):
    worker = begin("worker")
    eventually(has_looked)

    worker.signal(number)

    assert worker.wait(5) == 0
    assert worker.said == ""


def test_a_run_that_does_not_end_is_given_up_with_its_own_lease_alone(
    app, redis, agent, monkeypatch
):
    monkeypatch.setattr(workers, "STOP_SECONDS", 0.0)
    mine, theirs = refine_later(agent, "cli"), refine_later(another_agent(), "cli")
    theirs.claim()
    db.session.commit()
    over = threading.Event()

    def claim_and_hang(run: Waiting, lease_token: uuid.UUID) -> None:
        db.session.get_one(run.kind, run.id).claim(lease_token=lease_token)
        db.session.commit()
        over.wait(20)

    runner = ConcurrentRunner(1, claim_and_hang)
    runner.begin_next()
    eventually(lambda: outcome_of(mine)[0] == "running")

    runner.stop()
    over.set()
    assert runner.await_end(5)

    assert outcome_of(mine) == ("failed", "worker_lost")
    assert outcome_of(theirs) == ("running", None)
