"""Worker processes as they are run: a queue worked, signals obeyed, nothing left behind."""

import json
import os
import signal
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask
from redis import Redis

from refine.extensions import db
from refine.jobs.queue import QUEUE
from refine.jobs.sessions import refine_later
from refine.models import Agent, RefinementSession
from tests import factories
from tests.commands import UNUSED_PORT, children_of, eventually, is_alive, refine, start
from tests.jobs.test_queue import everything_in
from tests.scripted_model import ScriptedModel

YES = "YES, gladly."


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
def worker(app: Flask, redis: Redis, scripted: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    process = start("worker", environ=scripted)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def ended(session: RefinementSession) -> bool:
    db.session.rollback()
    db.session.refresh(session)
    return not session.is_live


def first_kept(agent: Agent) -> int:
    return db.session.scalars(agent.memories("core")).all()[0].id


def test_a_worker_runs_queued_sessions_until_the_queue_is_empty(
    redis: Redis, agent: Agent, model: ScriptedModel, scripted: dict[str, str]
) -> None:
    model.say(YES).call("complete", summary="All is well.")
    session = refine_later(agent, "cli")

    done = refine("worker", "--burst", environ=scripted)

    assert (done.returncode, done.stderr) == (0, "")
    assert ended(session)
    assert session.status == "completed"
    assert redis.keys(f"rq:job:{session.id}") == []


def test_two_workers_given_the_same_id_run_it_once(
    redis: Redis, agent: Agent, model: ScriptedModel, scripted: dict[str, str]
) -> None:
    both_took_it = threading.Event()
    model.say(YES).meanwhile(lambda: both_took_it.wait(3))
    model.call("complete", summary="All is well.")
    session = refine_later(agent, "cli")
    twice = str(session.id).encode()

    first = start("worker", "--burst", environ=scripted)
    eventually(lambda: len(model.requests) == 1)
    redis.rpush(f"rq:queue:{QUEUE}", twice)
    second = refine("worker", "--burst", environ=scripted)
    both_took_it.set()
    first.communicate(timeout=20)

    assert (first.returncode, second.returncode) == (0, 0)
    assert redis.llen(f"rq:queue:{QUEUE}") == 0
    assert ended(session)
    assert session.status == "completed"
    assert len(model.requests) == 2


def test_a_job_of_a_session_that_was_stopped_asks_nothing(
    redis: Redis, agent: Agent, model: ScriptedModel, scripted: dict[str, str]
) -> None:
    session = refine_later(agent, "cli")
    session.request_stop()
    db.session.commit()

    done = refine("worker", "--burst", environ=scripted)

    assert (done.returncode, done.stderr) == (0, "")
    assert model.requests == []


def test_a_failed_job_leaves_no_content_behind_and_is_forgotten_in_time(
    redis: Redis, agent: Agent, model: ScriptedModel, scripted: dict[str, str]
) -> None:
    model.say(YES)
    session = refine_later(agent, "cli")
    with db.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE session_entries RENAME TO away")

    try:
        done = refine("worker", "--burst", environ=scripted)
    finally:
        with db.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO session_entries")

    stored = everything_in(redis)
    kept_for_ever = [key for key in redis.keys("rq:job*") if redis.ttl(key) < 0]
    kept_for_ever += [key for key in redis.keys("rq:results*") if redis.ttl(key) < 0]
    assert f"session {session.id}: ProgrammingError" in done.stderr
    assert "canary" not in done.stderr
    assert b"canary" not in stored
    assert kept_for_ever == []
    assert ended(session)
    assert (session.status, session.error_kind) == ("failed", "internal")


def test_a_worker_asked_to_end_ends_its_session_in_order(
    worker: "subprocess.Popen[str]", agent: Agent, model: ScriptedModel
) -> None:
    answered = threading.Event()
    model.say(YES).call("delete", id=first_kept(agent))
    model.say("too late").meanwhile(lambda: answered.wait(30))
    session = refine_later(agent, "cli")
    eventually(lambda: len(model.requests) == 3)
    began = time.monotonic()

    worker.send_signal(signal.SIGTERM)
    worker.wait(timeout=10)
    answered.set()

    assert time.monotonic() - began < 10
    assert worker.returncode == 0
    assert ended(session)
    assert (session.status, session.end_reason) == ("incomplete", "its process was asked to end")
    assert session.mutation_count == 1


def test_a_worker_whose_whole_group_is_asked_to_end_ends_its_session_in_order(
    worker: "subprocess.Popen[str]", agent: Agent, model: ScriptedModel
) -> None:
    answered = threading.Event()
    model.say(YES).meanwhile(lambda: answered.wait(30))
    session = refine_later(agent, "cli")
    eventually(lambda: len(model.requests) == 1)

    for pid in [worker.pid, *children_of(worker.pid)]:
        os.kill(pid, signal.SIGTERM)
    worker.wait(timeout=10)
    answered.set()

    assert ended(session)
    assert (session.status, session.error_kind) == ("failed", "worker_stopped")


def test_an_idle_worker_ends_at_once(worker: "subprocess.Popen[str]", redis: Redis) -> None:
    eventually(
        lambda: [redis.hget(key, "state") for key in redis.smembers("rq:workers")] == [b"idle"]
    )

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=10) == 0
    assert redis.smembers("rq:workers") == set()


def test_a_killed_worker_leaves_no_work_horse_behind(
    worker: "subprocess.Popen[str]", agent: Agent, model: ScriptedModel
) -> None:
    answered = threading.Event()
    model.say(YES).meanwhile(lambda: answered.wait(30))
    refine_later(agent, "cli")
    eventually(lambda: len(model.requests) == 1)
    (horse,) = children_of(worker.pid)

    worker.kill()
    worker.wait()

    eventually(lambda: not is_alive(horse), seconds=5)
    answered.set()


def test_a_session_whose_worker_was_killed_can_be_given_up(
    worker: "subprocess.Popen[str]", agent: Agent, model: ScriptedModel
) -> None:
    answered = threading.Event()
    model.say(YES).meanwhile(lambda: answered.wait(30))
    session = refine_later(agent, "cli")
    eventually(lambda: len(model.requests) == 1)
    worker.kill()
    worker.wait()
    answered.set()

    db.session.refresh(session)
    session.heartbeat_at = session.created_at.replace(year=2020)
    db.session.commit()
    next_one = RefinementSession.queue(agent, "cli")
    db.session.commit()

    assert (session.status, session.error_kind) == ("failed", "worker_lost")
    assert next_one.status == "queued"


def test_a_worker_goes_on_with_the_next_session_after_one_that_failed(
    redis: Redis, agent: Agent, model: ScriptedModel, scripted: dict[str, str]
) -> None:
    other = factories.agent()
    factories.ledger(other, *[25] * 20)
    db.session.commit()
    model.http(401).say(YES).call("complete", summary="All is well.")
    failed, completed = refine_later(agent, "cli"), refine_later(other, "cli")

    done = refine("worker", "--burst", environ=scripted)

    assert done.returncode == 0
    assert ended(failed)
    assert ended(completed)
    assert [failed.status, completed.status] == ["failed", "completed"]


def test_a_worker_without_redis_says_so_in_one_line(app: Flask, environ: dict[str, str]) -> None:
    away = {**environ, "REDIS_URL": f"redis://127.0.0.1:{UNUSED_PORT}/0"}

    done = refine("worker", environ=away)

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "refine: Redis does not answer at REDIS_URL; start it, or mend the URL (ConnectionError)"
    ]


def test_payloads_that_name_another_function_are_not_run(
    redis: Redis, agent: Agent, scripted: dict[str, str], tmp_path: Path
) -> None:
    session = refine_later(agent, "cli")
    target = tmp_path / "made"
    payload = json.dumps(["os.mkdir", None, [str(target)], {}]).encode()
    redis.hset(f"rq:job:{session.id}", "data", zlib.compress(payload))

    done = refine("worker", "--burst", environ=scripted)

    assert not target.exists()
    assert "not a job of Refine: os.mkdir" in done.stderr
