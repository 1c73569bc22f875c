"""Workers stopped at any moment: their sessions end properly, and nothing is left behind."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from flask import Flask
from redis import Redis
from rq.worker import base

from refine.extensions import db
from refine.jobs import worker
from refine.jobs.dispatch import dispatch
from refine.jobs.queue import REQUESTED
from refine.jobs.runs import refine_later
from refine.models import Agent, RefinementSession
from refine.models.integrity import verify_all
from tests import factories, sql
from tests.commands import children_of, eventually, is_alive
from tests.forked import Service, services
from tests.in_redis import started_jobs
from tests.scripted_model import ScriptedModel, send

pytestmark = pytest.mark.slow

TOO_LONG_SECONDS = 10.0
LIMIT_SECONDS = 4


# -- at any moment --------------------------------------------------------------------------------


class Moment(NamedTuple):
    """When a session's worker is asked to stop: at a question to the model, or after its answer.

    ``edits``: as soon as so many are committed.
    """

    question: int
    is_answered: bool = False
    edits: int = 0
    seconds: float = 0.0


# How a session may end whose worker was asked to: by status, reason, and whether it changed things.
IN_ORDER = (
    ("queued", None, False),
    ("failed", "worker_stopped", False),
    ("incomplete", "worker_stopped", True),
    ("completed", None, True),
)

CONSENT, EDITS, CLOSE = 1, 2, 3
IDLE = Moment(question=9)
MOMENTS = (
    IDLE,
    Moment(question=0),
    Moment(question=0, seconds=0.03),
    Moment(CONSENT),
    Moment(CONSENT, is_answered=True),
    Moment(EDITS),
    Moment(EDITS, is_answered=True),
    Moment(EDITS, is_answered=True, edits=1),
    Moment(EDITS, is_answered=True, edits=4),
    Moment(CLOSE),
)


class Stage:
    """A model that consents, makes eight edits and completes; and who asks its workers to end."""

    def __init__(self, app: Flask, redis: Redis, *, asks_whole_group: bool) -> None:
        self.asked_at: dict[int, float] = {}
        self.children: list[int] = []
        self.over = threading.Event()
        self._moments: dict[str, Moment] = {}
        self._ledgers: dict[str, list[int]] = {}
        self._started: set[str] = set()
        self._app = app
        self._redis = redis
        self._ask = os.killpg if asks_whole_group else os.kill

    def add(self, moment: Moment) -> RefinementSession:
        """Queue a session whose worker is to be asked at this moment."""
        agent = factories.agent()
        ledger = factories.ledger(agent, *[25] * 40)
        session = RefinementSession.queue(agent, "cli")
        self._moments[str(session.id)] = moment
        self._ledgers[str(session.id)] = [memory.id for memory in ledger]
        db.session.commit()
        return session

    def ask(self, worker_pid: int) -> None:
        self.children += children_of(worker_pid)
        self.asked_at[worker_pid] = time.monotonic()
        self._ask(worker_pid, signal.SIGTERM)

    def ask_at_starts(self) -> bool:
        """Ask where RQ says that a job begins; tell whether that is done for all who want it."""
        at_start = {id_: moment for id_, moment in self._moments.items() if moment.question == 0}
        for id_, moment in at_start.items():
            if id_ not in self._started and (pid := self._worker_of(id_)):
                time.sleep(moment.seconds)
                self.ask(pid)
                self._started.add(id_)
        return at_start.keys() <= self._started

    def reply(self, handler: BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
        """Answer a question, and ask the worker whose session it is to end, if it is time."""
        id_ = asked["session_id"]
        moment = self._moments[id_]
        number = 1 + sum(message["role"] == "assistant" for message in asked["messages"])
        if moment.question == 0:
            eventually(lambda: id_ in self._started)
        if moment.question == number and not moment.is_answered:
            self.ask(self._worker_of(id_))
            self.over.wait(30)
        send(handler, 200, _answer(asked["model"], number, self._ledgers[id_]))
        if moment.question == number and moment.is_answered:
            self._await_edits(id_, moment.edits)
            self.ask(self._worker_of(id_))

    def _await_edits(self, session_id: str, count: int) -> None:
        made = f"SELECT mutation_count FROM refinement_sessions WHERE id = '{session_id}'"
        with self._app.app_context():
            while sql.value(made) < count and not self.over.is_set():
                time.sleep(0.001)

    def _worker_of(self, session_id: str) -> int:
        """The process that works on the session; 0 as long as there is none."""
        for execution in started_jobs(self._redis):
            if execution.decode().startswith(session_id):
                name = self._redis.hget(f"rq:execution:{execution.decode()}", "worker_name")
                return int(self._redis.hget(f"rq:worker:{name.decode()}", "pid"))
        return 0


def _answer(model_id: str, number: int, ids: list[int]) -> dict[str, Any]:
    edits = [{"action": "update", "id": id_, "content": f"tidied {id_} " * 8} for id_ in ids[:6]]
    edits += [{"action": "delete", "id": id_} for id_ in ids[6:8]]
    calls = edits if number == EDITS else [{"action": "complete", "summary": "Done."}]
    written = [
        {"id": f"c{n}", "function": {"name": "refinement", "arguments": json.dumps(call)}}
        for n, call in enumerate(calls)
    ]
    message = {"content": "YES"} if number == CONSENT else {"content": None, "tool_calls": written}
    return {
        "model": model_id,
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }


@contextmanager
def playing(stage: Stage) -> Iterator[str]:
    """The URL where the stage's model answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with suppress(ConnectionError):  # who asked has left
                stage.reply(self, asked)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        stage.over.set()
        server.shutdown()
        server.server_close()


def all_ended(workers: list[Service], stage: Stage, took: dict[int, float]) -> bool:
    """Whether all have ended; how long each of them took is noted."""
    for each in workers:
        if each.pid not in took and not each.is_running():
            took[each.pid] = time.monotonic() - stage.asked_at[each.pid]
    return len(took) == len(workers)


def outcome_of(session: RefinementSession) -> tuple[str, str | None, bool]:
    db.session.rollback()
    db.session.refresh(session)
    return session.status, session.error_kind, session.mutation_count > 0


@pytest.mark.parametrize("asks_whole_group", [False, True], ids=["the process", "its group"])
def test_a_worker_stopped_at_any_moment_ends_its_session_properly(
    app: Flask, environ: dict[str, str], redis: Redis, tmp_path: Path, asks_whole_group: bool
) -> None:
    stage = Stage(app, redis, asks_whole_group=asks_whole_group)
    sessions = [stage.add(moment) for moment in MOMENTS if moment is not IDLE]
    took: dict[int, float] = {}

    with (
        playing(stage) as url,
        services({**environ, "OPENROUTER_BASE_URL": url}, tmp_path) as begin,
    ):
        workers = [begin("worker") for _ in MOMENTS]
        eventually(lambda: redis.scard("rq:workers") == len(workers), seconds=30)
        dispatch()
        eventually(stage.ask_at_starts, seconds=30)
        eventually(lambda: len(stage.asked_at) == len(sessions), seconds=30)
        for idle in workers:
            if idle.pid not in stage.asked_at:
                stage.ask(idle.pid)
        eventually(lambda: all_ended(workers, stage, took), seconds=30)

    assert [each.code for each in workers] == [0] * len(workers)
    assert max(took.values()) < TOO_LONG_SECONDS
    assert [pid for pid in stage.children if is_alive(pid)] == []
    assert started_jobs(redis) == []
    assert [outcome for outcome in map(outcome_of, sessions) if outcome not in IN_ORDER] == []
    assert [chain.problem for chain in verify_all() if chain.problem] == []


# -- once more, and too late ----------------------------------------------------------------------


@pytest.fixture
def agent(app: Flask) -> Agent:
    owner = factories.agent()
    factories.ledger(owner, *[25] * 20)
    db.session.commit()
    return owner


@pytest.fixture
def begin(
    app: Flask, redis: Redis, environ: dict[str, str], model: ScriptedModel, tmp_path: Path
) -> Iterator[Callable[..., Service]]:
    with services({**environ, "OPENROUTER_BASE_URL": model.base_url}, tmp_path) as begun:
        yield begun


@pytest.fixture
def waiting(model: ScriptedModel) -> Iterator[threading.Event]:
    """Holds the model's last scripted answer back until it is set."""
    answered = threading.Event()
    yield answered
    answered.set()


@contextmanager
def held_by_another(session: RefinementSession) -> Iterator[None]:
    """Lock the session's row in another connection."""
    with db.engine.connect() as connection:
        connection.exec_driver_sql(
            f"SELECT 1 FROM refinement_sessions WHERE id = '{session.id}' FOR UPDATE"
        )
        yield
        connection.rollback()


def is_waited_for() -> bool:
    """Whether a worker hangs in a lock of a session's row."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    return bool(sql.value(waits + "AND query LIKE 'SELECT%%refinement_sessions%%'"))


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT,)],
    ids=lambda signals: " ".join(each.name for each in signals),
)
def test_a_worker_stopped_twice_or_by_ctrl_c_ends_its_session_properly(
    redis: Redis,
    agent: Agent,
    model: ScriptedModel,
    begin: Callable[..., Service],
    waiting: threading.Event,
    signals: tuple[signal.Signals, ...],
) -> None:
    model.say("YES").meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    process = begin("worker")
    eventually(lambda: len(model.requests) == 1)

    for number in signals:
        process.signal(number)
    code = process.wait(TOO_LONG_SECONDS)

    assert code == 0
    assert outcome_of(session) == ("failed", "worker_stopped", False)
    assert started_jobs(redis) == []


@pytest.mark.parametrize("is_registered", [False, True], ids=["before", "after"])
def test_a_worker_stopped_while_redis_registers_its_job_ends_properly(
    redis: Redis,
    agent: Agent,
    model: ScriptedModel,
    begin: Callable[..., Service],
    waiting: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    is_registered: bool,
) -> None:
    prepare, registering = base.prepare_execution, tmp_path / "registering"

    def slowly(*job: Any) -> Any:
        if is_registered:
            prepare(*job)
        registering.touch()
        time.sleep(0.5)
        return None if is_registered else prepare(*job)

    monkeypatch.setattr(base, "prepare_execution", slowly)
    model.say("YES").meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    process = begin("worker")
    eventually(registering.exists)

    process.signal(signal.SIGTERM)
    code = process.wait(TOO_LONG_SECONDS)

    assert code == 0
    assert outcome_of(session) in (("queued", None, False), ("failed", "worker_stopped", False))
    assert started_jobs(redis) == []


def test_a_worker_kills_its_job_early_enough_to_stop_in_time() -> None:
    left_seconds = TOO_LONG_SECONDS - worker.STOP_SECONDS

    assert 1 < left_seconds < 3


@pytest.mark.parametrize(
    ("after_a_change", "status"), [(False, "failed"), (True, "incomplete")], ids=str
)
def test_a_job_that_hangs_in_the_database_is_killed_and_its_session_ended(
    redis: Redis,
    agent: Agent,
    model: ScriptedModel,
    begin: Callable[..., Service],
    waiting: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    after_a_change: bool,
    status: str,
) -> None:
    monkeypatch.setattr(worker, "STOP_SECONDS", 1.0)
    if after_a_change:
        first = db.session.scalars(agent.ledger.core()).all()[0]
        model.say("YES").call("delete", id=first.id)
    model.say("YES").meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    process = begin("worker")
    eventually(lambda: len(model.requests) == (3 if after_a_change else 1))
    (horse,) = children_of(process.pid)

    with held_by_another(session):
        waiting.set()
        eventually(is_waited_for)
        process.signal(signal.SIGTERM)
        eventually(lambda: not is_alive(horse))
    code = process.wait(TOO_LONG_SECONDS)

    assert code == 0
    assert outcome_of(session) == (status, "worker_lost", after_a_change)
    assert session.end_reason == "its worker's process was killed"
    assert redis.zrange(f"rq:failed:{REQUESTED}", 0, -1) == [str(session.id).encode()]
    assert started_jobs(redis) == []


def test_a_second_stop_while_the_job_hangs_changes_nothing(
    redis: Redis,
    agent: Agent,
    model: ScriptedModel,
    begin: Callable[..., Service],
    waiting: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "STOP_SECONDS", 1.5)
    model.say("YES").meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    process = begin("worker")
    eventually(lambda: len(model.requests) == 1)
    (horse,) = children_of(process.pid)

    with held_by_another(session):
        waiting.set()
        eventually(is_waited_for)
        process.signal(signal.SIGTERM)
        time.sleep(1.1)  # RQ takes a second signal for the first one until a second has passed
        process.signal(signal.SIGTERM)
        eventually(lambda: not is_alive(horse))
    code = process.wait(TOO_LONG_SECONDS)

    assert code == 0
    assert outcome_of(session) == ("failed", "worker_lost", False)
    assert started_jobs(redis) == []


def test_a_job_timeout_during_a_database_lock_ends_the_session(
    redis: Redis,
    agent: Agent,
    model: ScriptedModel,
    begin: Callable[..., Service],
    waiting: threading.Event,
) -> None:
    model.say("YES").meanwhile(lambda: waiting.wait(20))
    session = refine_later(agent, "cli")
    redis.hset(f"rq:job:{session.id}", "timeout", LIMIT_SECONDS)
    process = begin("worker", "--burst")
    eventually(lambda: len(model.requests) == 1)

    with held_by_another(session):
        waiting.set()
        eventually(is_waited_for)
        time.sleep(LIMIT_SECONDS)
    code = process.wait()

    assert code == 0
    assert outcome_of(session) == ("failed", "timeout", False)
    assert redis.zrange(f"rq:failed:{REQUESTED}", 0, -1) == [str(session.id).encode()]
