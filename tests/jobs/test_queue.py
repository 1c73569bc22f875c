"""Jobs in Redis: ids and nothing else."""

import json
import zlib
from collections.abc import Iterator

import pytest
from flask import Flask
from redis import Redis

from refine import create_app
from refine.extensions import db
from refine.jobs.queue import (
    AUTOMATIC,
    MEMORY_TASKS,
    QUEUES,
    REQUESTED,
    TICKS,
    enqueue,
    jobs_of,
    queue,
    redis_connection,
)
from refine.jobs.runs import refine_later
from refine.models import Agent, AuditLog, RefinementSession, SessionAlreadyLive
from refine.models.runs.session import Trigger
from refine.settings import Settings
from tests import factories
from tests.commands import UNUSED_PORT
from tests.in_redis import everything_in


@pytest.fixture
def agent(app: Flask) -> Agent:
    owner = factories.agent(
        "the canary sings at dawn", "another canary", system_prompt="You are a canary."
    )
    db.session.commit()
    return owner


@pytest.fixture
def without_redis(agent: Agent, environ: dict[str, str]) -> Iterator[Agent]:
    """The agent, as an application sees it whose Redis is away."""
    agent_id = agent.id
    db.session.rollback()
    away = {**environ, "REDIS_URL": f"redis://127.0.0.1:{UNUSED_PORT}/0"}
    with create_app(Settings.from_environ(away)).app_context():
        yield db.session.get_one(Agent, agent_id)
        db.session.remove()
        db.engine.dispose()


def test_redis_holds_the_id_of_a_session_and_nothing_else(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")

    job, stored = redis.hgetall(f"rq:job:{session.id}"), everything_in(redis)
    payload = json.loads(zlib.decompress(job[b"data"]))
    assert payload == ["refine.jobs.runs.refine_session", None, [str(session.id)], {}]
    assert job[b"description"].decode() == f"refinement session {session.id}"
    assert (job[b"timeout"], job[b"result_ttl"], job[b"failure_ttl"]) == (b"1020", b"0", b"3600")
    assert b"canary" not in stored
    assert agent.name.encode() not in stored


def test_a_session_is_committed_before_it_is_dispatched(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "api")

    db.session.rollback()

    assert redis.lrange(f"rq:queue:{REQUESTED}", 0, -1) == [str(session.id).encode()]
    assert (session.status, session.trigger) == ("queued", "api")
    assert session.dispatched_at is not None


def test_a_second_request_names_the_live_session_and_queues_nothing(
    redis: Redis, agent: Agent
) -> None:
    session = refine_later(agent, "cli")

    with pytest.raises(SessionAlreadyLive) as refusal:
        refine_later(agent, "cli")

    assert refusal.value.session_id == session.id
    assert redis.llen(f"rq:queue:{REQUESTED}") == 1


def test_without_redis_a_session_stays_safely_queued(without_redis: Agent) -> None:
    session = refine_later(without_redis, "cli")

    db.session.rollback()
    assert (session.status, session.dispatched_at) == ("queued", None)
    assert [record.action for record in db.session.scalars(db.select(AuditLog))] == [
        "refinement_queued"
    ]


def test_a_flushed_redis_loses_no_session(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")
    redis.flushall()

    with redis_connection() as connection:
        enqueue(jobs_of([session]), connection)

        assert queue(REQUESTED, connection).job_ids == [str(session.id)]


def test_connections_are_kept_unless_they_are_the_callers_own(redis: Redis, app: Flask) -> None:
    def client_id(*, is_kept: bool = True) -> int:
        with redis_connection(is_kept=is_kept) as connection:
            return int(connection.client_id())

    kept = client_id()

    assert client_id() == kept
    assert client_id(is_kept=False) != kept


def test_requested_sessions_have_their_own_queue(redis: Redis, app: Flask) -> None:
    queues: dict[Trigger, str] = {
        **dict.fromkeys(("manual", "api", "cli"), REQUESTED),
        **dict.fromkeys(("weekly", "over_budget"), AUTOMATIC),
    }
    for trigger, name in queues.items():
        session = RefinementSession.queue(factories.agent("a memory"), trigger)
        enqueue(jobs_of([session]), redis)

        waiting = {each: queue(each, redis).job_ids for each in QUEUES}

        assert waiting == {**dict.fromkeys(QUEUES, []), name: [str(session.id)]}, trigger
        redis.flushall()


def test_workers_serve_requested_sessions_first() -> None:
    assert QUEUES == (REQUESTED, AUTOMATIC, MEMORY_TASKS, TICKS)
