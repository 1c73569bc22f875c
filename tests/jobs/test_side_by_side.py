"""Many runs side by side in the process of one worker: each lives and fails alone."""

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from redis import Redis

from refine import clock
from refine.extensions import db
from refine.jobs import side_by_side
from refine.jobs import worker as workers
from refine.jobs.queue import AUTOMATIC, QUEUES, REQUESTED, JsonJob, enqueue, jobs_of, queue
from refine.jobs.side_by_side import HeldRun, RunRegistry, SideBySide
from refine.jobs.tick import run_tick
from refine.jobs.worker import RefineWorker
from refine.models import RefinementSession
from refine.models.runs.session import Trigger
from tests import factories, sql
from tests.commands import children_of, eventually, is_alive
from tests.forked import Service, services
from tests.in_redis import started_jobs
from tests.scripted_model import ScriptedModel

TOO_LONG_SECONDS = 10.0
TEN = 10
IN_DATABASE = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"

Begin = Callable[..., Service]


@pytest.fixture
def begin(
    app: Flask, redis: Redis, environ: dict[str, str], model: ScriptedModel, tmp_path: Path
) -> Iterator[Begin]:
    """Starts commands whose workers have ten places."""
    own = {"OPENROUTER_BASE_URL": model.base_url, "REFINE_CONCURRENCY": str(TEN)}
    with services({**environ, **own}, tmp_path) as begun:
        yield begun


@pytest.fixture
def released(model: ScriptedModel) -> Iterator[threading.Event]:
    """Lets the model give the answers that it holds back."""
    released = threading.Event()
    yield released
    released.set()


def handed_over(redis: Redis, trigger: Trigger = "cli", **fields: Any) -> RefinementSession:
    """A session of an agent of its own that waits in Redis."""
    agent = factories.agent(**fields)
    factories.ledger(agent, *[25] * 20)
    session = RefinementSession.queue(agent, trigger)
    session.dispatched_at = session.created_at
    db.session.commit()
    enqueue(jobs_of([session]), redis)
    return session


def holding_back(model: ScriptedModel, released: threading.Event, count: int) -> None:
    """Have the model decline so many sessions, but not before it is released."""
    for _ in range(count):
        model.say("No.").meanwhile(lambda: released.wait(30))


def asked_for(model: ScriptedModel) -> set[str]:
    """The sessions that the model was asked for."""
    return {asked["session_id"] for asked in model.requests}


def outcome_of(session: RefinementSession) -> tuple[str, str | None]:
    db.session.rollback()
    db.session.refresh(session)
    return session.status, session.error_kind


def statuses_of(*sessions: RefinementSession) -> list[str]:
    return sorted(outcome_of(each)[0] for each in sessions)


def failed_jobs(redis: Redis, name: str) -> list[str]:
    return sorted(id_.decode() for id_ in redis.zrange(f"rq:failed:{name}", 0, -1))


# -- side by side ---------------------------------------------------------------------------------


def test_a_work_horse_takes_what_waits_until_nothing_is_left(redis: Redis, app: Flask) -> None:
    demo = {"account": factories.account(slug="demo"), "model_id": "rehearsal/x"}
    sessions = [handed_over(redis, **demo) for _ in range(3)]
    worker = RefineWorker([queue(name, redis) for name in QUEUES], connection=redis)
    requested = queue(REQUESTED, redis)
    first = JsonJob.fetch(str(sessions[0].id), connection=redis)
    requested.remove(first)
    worker.prepare_execution(first)
    registry = RunRegistry(2)

    SideBySide(worker, registry, places=2).work(first, requested)

    assert [outcome_of(each) for each in sessions] == [("completed", None)] * 3
    assert (registry.runs(), requested.job_ids, started_jobs(redis)) == ([], [], [])


@pytest.mark.slow
def test_two_sessions_run_side_by_side_in_one_process(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    holding_back(model, released, 2)
    sessions = [handed_over(redis) for _ in range(2)]
    worker = begin("worker", "--burst")
    eventually(lambda: len(asked_for(model)) == 2)
    horses = children_of(worker.pid)

    released.set()
    code = worker.wait()

    assert (len(horses), code) == (1, 0)
    assert [outcome_of(each) for each in sessions] == [("declined", None)] * 2
    assert started_jobs(redis) == []
    assert [redis.exists(f"rq:job:{each.id}") for each in sessions] == [0, 0]


@pytest.mark.slow
def test_a_session_that_comes_later_waits_for_no_other(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    holding_back(model, released, 1)
    model.say("No.")
    first = handed_over(redis)
    worker = begin("worker", "--burst")
    eventually(lambda: len(model.requests) == 1)

    later = handed_over(redis)
    eventually(lambda: outcome_of(later) == ("declined", None))
    meanwhile = outcome_of(first)
    released.set()

    assert worker.wait() == 0
    assert meanwhile == ("running", None)
    assert outcome_of(first) == ("declined", None)


@pytest.mark.slow
def test_a_worker_runs_no_more_at_once_than_it_has_places(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    holding_back(model, released, 3)
    sessions = [handed_over(redis) for _ in range(3)]
    worker = begin("worker", "--burst", REFINE_CONCURRENCY="2")
    eventually(lambda: len(asked_for(model)) == 2)
    time.sleep(1)

    at_once = len(asked_for(model))
    released.set()

    assert (at_once, worker.wait()) == (2, 0)
    assert [outcome_of(each) for each in sessions] == [("declined", None)] * 3


@pytest.mark.slow
def test_requested_sessions_take_the_next_free_place(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    holding_back(model, released, 1)
    model.say("No.").say("No.")
    handed_over(redis)
    worker = begin("worker", "--burst", REFINE_CONCURRENCY="1")
    eventually(lambda: len(model.requests) == 1)
    swept, requested = handed_over(redis, "weekly"), handed_over(redis)

    released.set()
    worker.wait()

    asked = [each["session_id"] for each in model.requests]
    assert asked[1:] == [str(requested.id), str(swept.id)]


@pytest.mark.slow
def test_ten_sessions_that_wait_for_their_model_share_one_heartbeat_and_hold_no_transaction(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    holding_back(model, released, TEN)
    for _ in range(TEN):
        handed_over(redis)
    worker = begin("worker", "--burst")
    eventually(lambda: len(asked_for(model)) == TEN)
    db.session.rollback()

    eventually(lambda: sql.value(f"{IN_DATABASE} AND query LIKE 'WITH stamped%%'") == 1)
    eventually(lambda: sql.value(f"{IN_DATABASE} AND state = 'idle in transaction'") == 0)
    released.set()

    assert worker.wait() == 0


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_session_fails_alone(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    holding_back(model, released, 2)
    failing, other = handed_over(redis), handed_over(redis)
    sql.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'a bad sector'; END $$",
        "CREATE TRIGGER refuse BEFORE UPDATE OF llm_calls ON refinement_sessions FOR EACH ROW "
        f"WHEN (OLD.id = '{failing.id}') EXECUTE FUNCTION refuse()",
    )

    try:
        worker = begin("worker", "--burst")
        eventually(lambda: len(asked_for(model)) == 2)
        released.set()
        code = worker.wait()
    finally:
        db.session.rollback()
        sql.run("DROP FUNCTION refuse() CASCADE")

    assert code == 0
    assert outcome_of(failing) == ("failed", "internal")
    assert outcome_of(other) == ("declined", None)
    assert f"run {failing.id}: " in worker.said
    assert failed_jobs(redis, REQUESTED) == [str(failing.id)]
    assert started_jobs(redis) == []


@pytest.mark.slow
def test_sessions_whose_process_is_killed_end_at_once_and_are_tried_again(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    holding_back(model, released, 2)
    sessions = [handed_over(redis, "weekly") for _ in range(2)]
    worker = begin("worker", "--burst")
    eventually(lambda: len(asked_for(model)) == 2)
    (horse,) = children_of(worker.pid)

    os.kill(horse, signal.SIGKILL)
    code = worker.wait()
    outcomes = [outcome_of(each) for each in sessions]
    run_tick(clock.now() + timedelta(minutes=6))

    assert (code, outcomes) == (0, [("failed", "worker_lost")] * 2)
    assert {each.end_reason for each in sessions} == {"its worker's process was killed"}
    assert failed_jobs(redis, AUTOMATIC) == sorted(str(each.id) for each in sessions)
    assert started_jobs(redis) == []
    for each in sessions:
        again = RefinementSession.live_of(each.agent)
        assert again is not None
        assert again.attempt == 2


@pytest.mark.slow
def test_a_kill_ends_also_what_came_after_the_job_that_the_process_began_with(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    model.say("No.").meanwhile(lambda: time.sleep(2))
    holding_back(model, released, 1)
    first, later = handed_over(redis), handed_over(redis)
    worker = begin("worker", "--burst")
    eventually(lambda: statuses_of(first, later) == ["declined", "running"])
    (horse,) = children_of(worker.pid)

    os.kill(horse, signal.SIGKILL)
    worker.wait()

    assert statuses_of(first, later) == ["declined", "failed"]
    assert started_jobs(redis) == []


def test_a_killed_process_ends_only_the_runs_that_its_own_lease_holds(
    redis: Redis, app: Flask
) -> None:
    runs = factories.session(), factories.session()
    mine, taken_over = (each.id for each in runs)
    assert runs[0].lease_token is not None
    worker = RefineWorker([queue(name, redis) for name in QUEUES], connection=redis)
    worker._registry = registry = RunRegistry(2)
    registry.put(0, HeldRun(mine, runs[0].lease_token))
    registry.put(1, HeldRun(taken_over, uuid.uuid4()))

    worker._end_orphaned_runs()

    ended, left = (db.session.get_one(RefinementSession, id_) for id_ in (mine, taken_over))
    assert (ended.status, ended.error_kind) == ("failed", "worker_lost")
    assert (left.status, left.error_kind) == ("running", None)


@pytest.mark.slow
def test_ten_sessions_end_within_ten_seconds_when_their_worker_is_stopped(
    redis: Redis, model: ScriptedModel, begin: Begin, released: threading.Event
) -> None:
    holding_back(model, released, TEN)
    sessions = [handed_over(redis) for _ in range(TEN)]
    worker = begin("worker")
    eventually(lambda: len(asked_for(model)) == TEN)
    (horse,) = children_of(worker.pid)

    worker.signal(signal.SIGTERM)
    code = worker.wait(TOO_LONG_SECONDS)

    assert (code, is_alive(horse)) == (0, False)
    assert {outcome_of(each) for each in sessions} == {("failed", "worker_stopped")}
    assert started_jobs(redis) == []


@pytest.mark.slow
def test_a_session_that_hangs_is_ended_once_no_other_is_left(
    redis: Redis,
    model: ScriptedModel,
    begin: Begin,
    released: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(side_by_side, "_HANGS_AFTER_SECONDS", -1017)  # three seconds in all
    holding_back(model, released, 1)
    session = handed_over(redis)

    worker = begin("worker", "--burst")
    code = worker.wait()

    assert (code, len(model.requests)) == (0, 1)
    assert worker.lines("jobs hang") != []
    assert outcome_of(session) == ("failed", "worker_lost")
    assert failed_jobs(redis, REQUESTED) == [str(session.id)]


@pytest.mark.slow
def test_a_process_that_gives_no_sign_of_life_is_killed(
    redis: Redis,
    model: ScriptedModel,
    begin: Begin,
    released: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "MONITORING_SECONDS", 1)
    monkeypatch.setattr(workers, "HORSE_SILENT_SECONDS", 3)
    holding_back(model, released, 1)
    session = handed_over(redis)
    worker = begin("worker", "--burst")
    eventually(lambda: len(model.requests) == 1)
    (horse,) = children_of(worker.pid)

    os.kill(horse, signal.SIGSTOP)
    code = worker.wait()

    assert (code, is_alive(horse)) == (0, False)
    assert outcome_of(session) == ("failed", "worker_lost")


# -- the registry ---------------------------------------------------------------------------------


def a_run() -> HeldRun:
    return HeldRun(uuid.uuid4(), lease_token=uuid.uuid4())


def test_the_roster_lists_the_runs_in_hand() -> None:
    registry, (first, second) = RunRegistry(3), (a_run(), a_run())
    registry.put(0, first)
    registry.put(2, second)
    both = registry.runs()

    registry.put(0, None)

    assert both == [first, second]
    assert registry.runs() == [second]


def test_the_roster_outlives_the_process_that_wrote_it() -> None:
    registry, run = RunRegistry(2), a_run()
    if (child := os.fork()) == 0:
        registry.put(1, run)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    assert registry.runs() == [run]
