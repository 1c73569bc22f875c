"""Worker processes: they empty queues, obey signals and leave nothing behind."""

import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from flask import Flask
from redis import Redis
from rq.timeouts import UnixSignalDeathPenalty

from refine.embedded import redis_url, valkey
from refine.extensions import db
from refine.jobs import worker as workers
from refine.jobs.queue import (
    AUTOMATIC,
    REQUESTED,
    TICK,
    TICKS,
    JsonJob,
    enqueue,
    jobs_of,
    queue,
)
from refine.jobs.runs import refine_later, request_access_later
from refine.jobs.tick import run_tick
from refine.jobs.worker import RefineWorker
from refine.jobs.workers import SILENT_AFTER, known_workers, live_workers
from refine.models import Agent, ClockMark, RefinementSession
from refine.models.runs.access import AccessTerms
from refine.models.runs.run import LOST_AFTER
from tests import factories, sql
from tests.commands import (
    UNUSED_PORT,
    children_of,
    eventually,
    is_alive,
    start,
)
from tests.forked import Service, refine, services
from tests.in_redis import everything_in, is_idle, let_pass, started_jobs, without_command
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.slow

YES = "YES, gladly."
GAVE_UP = "restarting the worker"

Begin = Callable[..., Service]


@pytest.fixture
def agent(app: Flask) -> Agent:
    owner = factories.agent(system_prompt="You are a canary.")
    factories.ledger(owner, *[25] * 19)
    factories.memory(owner, "the canary sings at dawn")
    db.session.commit()
    return owner


@pytest.fixture
def scripted(environ: dict[str, str], model: ScriptedModel) -> dict[str, str]:
    """The environment of a worker whose agents the scripted model answers for."""
    return {**environ, "OPENROUTER_BASE_URL": model.base_url}


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


def worked_off(begin: Begin) -> Service:
    """A worker that was run until the queues were empty."""
    worker = begin("worker", "--burst")
    worker.wait()
    return worker


def process_at_request(number: int, worker: Service, model: ScriptedModel) -> int:
    """The process of a worker's jobs, once it has sent the model that many requests."""
    eventually(lambda: len(model.requests) == number)
    (horse,) = children_of(worker.pid)
    return horse


def kill_process_of(worker: Service, horse: int) -> None:
    """Kill the process of a worker's jobs, and wait until the worker has worked off the rest."""
    os.kill(horse, signal.SIGKILL)
    worker.wait()


def another_agent() -> Agent:
    owner = factories.agent()
    factories.ledger(owner, *[25] * 20)
    db.session.commit()
    return owner


def ended(session: RefinementSession) -> bool:
    db.session.rollback()
    db.session.refresh(session)
    return not session.is_live


def first_kept(agent: Agent) -> int:
    return db.session.scalars(agent.ledger.core()).all()[0].id


# -- the queue ------------------------------------------------------------------------------------


def test_a_worker_runs_queued_sessions_until_the_queue_is_empty(
    redis: Redis, agent: Agent, model: ScriptedModel, scripted: dict[str, str]
) -> None:
    model.say(YES).call("complete", summary="All is well.")
    session = refine_later(agent, "cli")

    done = refine("worker", "--burst", environ=scripted)

    assert (done.returncode, done.stdout) == (0, "")
    assert [json.loads(line)["session_id"] for line in done.stderr.splitlines()] == [
        str(session.id)
    ]
    assert ended(session)
    assert session.status == "completed"
    assert redis.keys(f"rq:job:{session.id}") == []


def test_two_workers_given_the_same_id_run_it_once(
    redis: Redis, agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say(YES).meanwhile(lambda: waiting.wait(20))
    model.call("complete", summary="All is well.")
    session = refine_later(agent, "cli")
    first = begin("worker", "--burst")
    eventually(lambda: len(model.requests) == 1)
    redis.rpush(f"rq:queue:{REQUESTED}", str(session.id).encode())

    second = worked_off(begin)
    waiting.set()

    assert (first.wait(), second.code) == (0, 0)
    assert redis.llen(f"rq:queue:{REQUESTED}") == 0
    assert ended(session)
    assert session.status == "completed"
    assert len(model.requests) == 2


def test_a_worker_tells_what_it_works_on_and_once_frozen_counts_no_more(
    redis: Redis, agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say(YES).meanwhile(lambda: waiting.wait(20))
    model.call("complete", summary="All is well.")
    session = refine_later(agent, "cli")
    worker = begin("worker")
    eventually(lambda: len(model.requests) == 1)

    (busy,) = known_workers(redis, with_runs=True).live
    worker.signal(signal.SIGSTOP)
    let_pass(redis, f"rq:worker:{busy.name}", SILENT_AFTER)
    found = known_workers(redis, with_runs=True)
    worker.signal(signal.SIGCONT)
    waiting.set()

    assert busy.name.startswith(f"{socket.gethostname()}-{worker.pid}-")
    assert busy.run_ids == [session.id]
    assert (found.live, [each.name for each in found.silent]) == ([], [busy.name])
    eventually(lambda: ended(session))


def test_a_job_of_a_session_that_was_stopped_asks_nothing(
    agent: Agent, model: ScriptedModel, begin: Begin
) -> None:
    session = refine_later(agent, "cli")
    session.request_stop()
    db.session.commit()

    worker = worked_off(begin)

    assert (worker.code, worker.said) == (0, "")
    assert model.requests == []


def test_requested_sessions_come_before_automatic_ones(
    agent: Agent, model: ScriptedModel, begin: Begin
) -> None:
    model.http(401).http(401)
    swept = refine_later(agent, "weekly")
    asked = refine_later(another_agent(), "api")

    worker = worked_off(begin)

    assert [line["session_id"] for line in worker.lines("session ended")] == [
        str(asked.id),
        str(swept.id),
    ]


def test_a_worker_runs_ticks_too(redis: Redis, begin: Begin) -> None:
    queue(TICKS, redis).enqueue_call(TICK)

    worker = worked_off(begin)

    assert worker.code == 0
    assert ClockMark.age("tick") is not None


def test_a_worker_continues_after_a_failed_session(
    agent: Agent, model: ScriptedModel, begin: Begin
) -> None:
    model.http(401).say(YES).call("complete", summary="All is well.")
    failed, completed = refine_later(agent, "cli"), refine_later(another_agent(), "cli")

    worker = worked_off(begin)

    assert worker.code == 0
    assert ended(failed)
    assert ended(completed)
    assert [failed.status, completed.status] == ["failed", "completed"]


def test_a_worker_without_redis_says_so_in_one_line(begin: Begin) -> None:
    worker = begin("worker", REDIS_URL=f"redis://127.0.0.1:{UNUSED_PORT}/0")

    code = worker.wait()

    assert code == 1
    assert worker.said.splitlines() == [
        "refine: Redis does not answer at REDIS_URL; start it, or fix REDIS_URL "
        "(ConnectionRefusedError)"
    ]


def test_a_payload_that_names_another_function_is_not_run(
    redis: Redis, agent: Agent, begin: Begin, tmp_path: Path
) -> None:
    session = refine_later(agent, "cli")
    target = tmp_path / "made"
    payload = json.dumps(["os.mkdir", None, [str(target)], {}]).encode()
    redis.hset(f"rq:job:{session.id}", "data", zlib.compress(payload))

    worker = worked_off(begin)

    assert not target.exists()
    assert "not a job of Refine: os.mkdir" in worker.said


@pytest.mark.parametrize(
    "fields",
    [
        {"success_callback_name": "os.mkdir"},
        {"failure_callback_name": "os.mkdir"},
        {"stopped_callback_name": "os.mkdir"},
        {"webhooks": json.dumps([{"url": "http://127.0.0.1:1/", "job_status": "finished"}])},
        {"repeats_left": 3, "repeat_intervals": "[0]"},
        {"retries_left": 3},
        {"dependency_ids": '["another"]'},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_job_with_anything_that_refine_does_not_set_is_refused(
    redis: Redis, agent: Agent, begin: Begin, fields: dict[str, str]
) -> None:
    session = refine_later(agent, "cli")
    redis.hset(f"rq:job:{session.id}", mapping=fields)

    worker = worked_off(begin)

    assert worker.code == 0
    assert "not a job of Refine: it has callbacks" in worker.said
    db.session.rollback()
    db.session.refresh(session)
    assert session.status == "queued"


def test_no_callback_of_a_job_is_ever_called(redis: Redis, app: Flask) -> None:
    """Whichever of RQ's ways leads to it: a job that ends, fails, is stopped or is abandoned."""
    names = {
        f"{end}_callback_name": f"{__name__}.{_planted.__name__}"
        for end in ("success", "failure", "stopped")
    }
    tick = queue(TICKS, redis).enqueue_call(TICK)
    redis.hset(f"rq:job:{tick.id}", mapping=names)

    job = JsonJob.fetch(tick.id, connection=redis)
    job.execute_success_callback(UnixSignalDeathPenalty, None)
    job.execute_failure_callback(UnixSignalDeathPenalty, None, None, None)
    job.execute_stopped_callback(UnixSignalDeathPenalty)

    assert _called == []


_called: list[object] = []


def _planted(*arguments: object) -> None:
    _called.append(arguments)


@pytest.mark.parametrize("planted", [pickle.dumps(("os.mkdir", None, ("x",), {})), b"{", b"[1]"])
def test_refuses_a_payload_that_is_not_a_call_and_runs_the_next_job(
    redis: Redis, agent: Agent, begin: Begin, planted: bytes
) -> None:
    session = refine_later(agent, "cli")
    redis.hset(f"rq:job:{session.id}", "data", planted)
    queue(TICKS, redis).enqueue_call(TICK)

    worker = worked_off(begin)

    assert worker.code == 0
    assert ClockMark.age("tick") is not None


@pytest.mark.parametrize(
    "field", ["timeout", "status", "created_at", "ttl", "description", b"\xff"], ids=str
)
def test_a_job_that_cannot_be_read_is_dropped_and_the_next_one_runs(
    redis: Redis, agent: Agent, begin: Begin, field: str | bytes
) -> None:
    session = refine_later(agent, "cli")
    redis.hset(f"rq:job:{session.id}", field, b"\xff?")
    queue(TICKS, redis).enqueue_call(TICK)

    worker = worked_off(begin)

    assert (worker.code, GAVE_UP in worker.said) == (0, False)
    assert ClockMark.age("tick") is not None


# -- faults ---------------------------------------------------------------------------------------


def test_a_failed_job_leaves_no_content_behind_and_expires(
    redis: Redis, agent: Agent, model: ScriptedModel, begin: Begin
) -> None:
    model.say(YES)
    session = refine_later(agent, "cli")
    sql.run("ALTER TABLE session_entries ADD CONSTRAINT away CHECK (false) NOT VALID")

    try:
        worker = worked_off(begin)
    finally:
        sql.run("ALTER TABLE session_entries DROP CONSTRAINT away")

    stored = everything_in(redis)
    kept_for_ever = [key for key in redis.keys("rq:job*") if redis.ttl(key) < 0]
    kept_for_ever += [key for key in redis.keys("rq:results*") if redis.ttl(key) < 0]
    assert f"run {session.id}: IntegrityError" in worker.said
    assert "canary" not in worker.said
    assert b"canary" not in stored
    assert kept_for_ever == []
    assert ended(session)
    assert (session.status, session.error_kind) == ("failed", "internal")


def test_the_job_timeout_fails_the_job_and_ends_its_session(
    redis: Redis, agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say(YES).meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    redis.hset(f"rq:job:{session.id}", "timeout", 1)

    worker = worked_off(begin)

    assert f"run {session.id}: JobTimeoutException" in worker.said
    assert ended(session)
    assert (session.status, session.error_kind) == ("failed", "timeout")
    assert session.end_reason == "the job's time limit was reached"
    assert redis.zrange(f"rq:failed:{REQUESTED}", 0, -1) == [str(session.id).encode()]
    assert started_jobs(redis) == []


def test_the_job_timeout_keeps_the_edits_made(
    redis: Redis, agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say(YES).call("delete", id=first_kept(agent))
    model.say("too late").meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    redis.hset(f"rq:job:{session.id}", "timeout", 5)

    worked_off(begin)

    assert len(model.requests) == 3
    assert ended(session)
    assert (session.status, session.error_kind) == ("incomplete", "timeout")
    assert (session.mutation_count, session.memories_after) == (1, 19)
    assert redis.zrange(f"rq:failed:{REQUESTED}", 0, -1) == [str(session.id).encode()]


@pytest.mark.parametrize(
    ("after_a_change", "status"), [(False, "failed"), (True, "incomplete")], ids=str
)
def test_a_session_whose_process_is_killed_ends_at_once_and_the_next_one_runs(
    redis: Redis,
    agent: Agent,
    model: ScriptedModel,
    begin: Begin,
    waiting: threading.Event,
    after_a_change: bool,
    status: str,
) -> None:
    if after_a_change:
        model.say(YES).call("delete", id=first_kept(agent))
    model.say("too late").meanwhile(lambda: waiting.wait(20))
    model.http(401)
    session = refine_later(agent, "cli")
    next_one = refine_later(another_agent(), "cli")
    worker = begin("worker", "--burst")
    horse = process_at_request(3 if after_a_change else 1, worker, model)

    kill_process_of(worker, horse)

    assert worker.code == 0
    assert [line["session_id"] for line in worker.lines("session ended")] == [
        str(session.id),
        str(next_one.id),
    ]
    assert ended(session)
    assert (session.status, session.error_kind) == (status, "worker_lost")
    assert session.end_reason == "its worker's process was killed"
    assert ended(next_one)
    assert next_one.error_kind == "unauthorized"
    assert started_jobs(redis) == []


def test_a_request_for_access_whose_process_is_killed_fails_at_once(
    redis: Redis, agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say("YES").meanwhile(lambda: waiting.wait(20))
    reader = factories.user(account=agent.account)
    terms = AccessTerms("agent_asked", "to see why it declined", 15)
    grant = request_access_later(agent, reader, terms)
    worker = begin("worker", "--burst")
    horse = process_at_request(1, worker, model)

    kill_process_of(worker, horse)

    db.session.rollback()
    db.session.refresh(grant)
    assert (grant.status, grant.granted_at) == ("failed", None)
    assert started_jobs(redis) == []


def test_a_killed_session_that_cannot_be_ended_stops_no_other(
    agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say(YES).meanwhile(lambda: waiting.wait(20))
    model.say(YES).call("complete", summary="All is well.")
    session = refine_later(agent, "cli")
    next_one = refine_later(another_agent(), "cli")
    worker = begin("worker", "--burst")
    horse = process_at_request(1, worker, model)
    refused = session.id
    db.session.commit()
    sql.run(
        "CREATE FUNCTION refuse_end() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'a bad sector'; END $$",
        "CREATE TRIGGER refuse_end BEFORE UPDATE OF status ON refinement_sessions FOR EACH ROW "
        f"WHEN (OLD.id = '{refused}') EXECUTE FUNCTION refuse_end()",
    )

    try:
        kill_process_of(worker, horse)
    finally:
        sql.run("DROP FUNCTION refuse_end() CASCADE")

    assert not ended(session)
    assert ended(next_one)
    assert next_one.status == "completed"


def test_killing_the_process_of_an_ended_session_changes_nothing(
    agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say("No.").meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    worker = begin("worker", "--burst")
    horse = process_at_request(1, worker, model)
    db.session.refresh(session)
    session.finish("declined", "the agent declined")
    db.session.commit()

    kill_process_of(worker, horse)

    assert worker.lines("session ended") == []
    assert ended(session)
    assert (session.status, session.error_kind) == ("declined", None)


def test_a_session_continues_without_redis_and_its_worker_waits_for_it(
    agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say(YES).meanwhile(lambda: waiting.wait(20))
    model.call("complete", summary="All is well.")
    session = RefinementSession.queue(agent, "cli")
    session.dispatched_at = session.created_at
    db.session.commit()

    # Valkey's socket needs a short path
    with tempfile.TemporaryDirectory(prefix="refine-worker-") as folder, ExitStack() as servers:
        url = redis_url(Path(folder))
        server = servers.enter_context(valkey.running(Path(folder)))
        with Redis.from_url(url) as redis:
            enqueue(jobs_of([session]), redis)
            worker = begin("worker", REDIS_URL=url)
            eventually(lambda: len(model.requests) == 1)
            server.kill()
            server.wait()
            waiting.set()
            eventually(lambda: ended(session))
            server = servers.enter_context(valkey.running(Path(folder)))
            eventually(lambda: redis.smembers("rq:workers") and not children_of(worker.pid))
            worker.signal(signal.SIGTERM)
            code = worker.wait()

    assert session.status == "completed"
    assert code == 0


def test_a_worker_that_gave_up_is_replaced_when_redis_is_back(
    redis: Redis, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "WORKER_TTL_SECONDS", 16)  # its heart beats every second
    service = begin("worker")
    eventually(lambda: is_idle(redis))
    (first,) = redis.smembers("rq:workers")

    with without_command(redis, "hset"):
        # longer than one successor needs to fail as well
        eventually(lambda: len(service.lines(GAVE_UP)) > 2)
    eventually(lambda: redis.smembers("rq:workers") - {first})
    service.signal(signal.SIGTERM)
    code = service.wait()

    assert code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_worker_can_be_stopped_before_it_is_replaced(
    redis: Redis, begin: Begin, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(workers, "WORKER_TTL_SECONDS", 16)
    monkeypatch.setattr(workers, "_PAUSE_SECONDS", 60.0)
    service = begin("worker")
    eventually(lambda: is_idle(redis))

    with without_command(redis, "hset"):
        eventually(lambda: service.lines(GAVE_UP))
        service.signal(number)
        code = service.wait()

    assert code == 0


def test_a_worker_can_be_stopped_while_it_logs_that_it_is_replaced(
    redis: Redis, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppingHandler(logging.StreamHandler):  # type: ignore[type-arg]
        def format(self, record: logging.LogRecord) -> str:
            if GAVE_UP in str(record.msg):
                signal.raise_signal(signal.SIGTERM)
            return ""

    monkeypatch.setattr(workers, "WORKER_TTL_SECONDS", 16)
    monkeypatch.setattr(workers, "_PAUSE_SECONDS", 60.0)
    monkeypatch.setattr(logging.getLogger(workers.__name__), "handlers", [StoppingHandler()])
    service = begin("worker")
    eventually(lambda: is_idle(redis))

    with without_command(redis, "hset"):
        code = service.wait()

    assert code == 0


def test_a_worker_forgotten_by_a_flushed_redis_is_counted_again(redis: Redis) -> None:
    forgotten = RefineWorker([queue(AUTOMATIC, redis)], connection=redis)
    forgotten.register_birth()
    redis.flushall()

    forgotten.heartbeat()

    assert live_workers(redis) == 1


# -- workers that are lost ------------------------------------------------------------------------


def grow_silent(session: RefinementSession) -> None:
    """Make the last heartbeat so old that its worker counts as lost."""
    sql.run(
        "UPDATE refinement_sessions "
        f"SET heartbeat_at = heartbeat_at - interval '{LOST_AFTER.seconds + 1} seconds' "
        f"WHERE id = '{session.id}'"
    )


def test_a_killed_worker_leaves_no_work_horse_behind_and_a_tick_ends_its_session(
    agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    model.say(YES).meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    worker = begin("worker")
    horse = process_at_request(1, worker, model)

    worker.kill()
    eventually(lambda: not is_alive(horse), seconds=5)
    at_once = run_tick()
    grow_silent(session)
    later = run_tick()

    assert (at_once.lost, later.lost) == (0, 1)
    assert ended(session)
    assert (session.status, session.error_kind) == ("failed", "worker_lost")
    assert RefinementSession.queue(agent, "cli").status == "queued"


def test_a_lost_worker_can_change_nothing_more(
    agent: Agent, model: ScriptedModel, begin: Begin, waiting: threading.Event
) -> None:
    kept = [memory.id for memory in db.session.scalars(agent.ledger.core())]
    model.say(YES).call("delete", id=kept[0]).meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    worker = begin("worker", "--burst")
    horse = process_at_request(2, worker, model)
    os.kill(horse, signal.SIGSTOP)
    grow_silent(session)
    ticked = run_tick()

    waiting.set()
    os.kill(horse, signal.SIGCONT)
    worker.wait()

    assert ticked.lost == 1
    assert worker.code == 0
    assert ended(session)
    assert (session.status, session.error_kind) == ("failed", "worker_lost")
    assert [memory.id for memory in db.session.scalars(agent.ledger.core())] == kept
    assert len(model.requests) == 2


# -- being asked to stop ---------------------------------------------------------------------------


@pytest.fixture
def worker(redis: Redis, scripted: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """The command itself, in the end killed."""
    process = start("worker", environ=scripted)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_a_stopped_worker_ends_its_session_properly(
    worker: "subprocess.Popen[str]", agent: Agent, model: ScriptedModel, waiting: threading.Event
) -> None:
    model.say(YES).call("delete", id=first_kept(agent))
    model.say("too late").meanwhile(lambda: waiting.wait(30))
    session = refine_later(agent, "cli")
    eventually(lambda: len(model.requests) == 3)
    began = time.monotonic()

    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=10)

    assert time.monotonic() - began < 10
    assert worker.returncode == 0
    assert ended(session)
    assert (session.status, session.end_reason) == ("incomplete", "its process was asked to stop")
    assert session.mutation_count == 1


def test_an_idle_worker_stops_at_once(begin: Begin, redis: Redis) -> None:
    worker = begin("worker")
    eventually(
        lambda: [redis.hget(key, "state") for key in redis.smembers("rq:workers")] == [b"idle"]
    )

    worker.signal(signal.SIGTERM)

    assert worker.wait(10) == 0
    assert redis.smembers("rq:workers") == set()
