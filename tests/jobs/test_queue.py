"""What goes through Redis: ids and nothing else; and what does not depend on it."""

import json
import zlib
from collections.abc import Iterator

import pytest
from flask import Flask
from redis import Redis

from refine import create_app
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.queue import (
    ASKED,
    QUEUES,
    REMEMBERED,
    SWEPT,
    TICKS,
    enqueue,
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


def job_hash(redis: Redis, session: RefinementSession) -> dict[bytes, bytes]:
    return redis.hgetall(f"rq:job:{session.id}")


def test_the_payload_holds_the_id_and_nothing_else(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")

    payload = json.loads(zlib.decompress(job_hash(redis, session)[b"data"]))

    assert payload == ["refine.jobs.runs.refine_session", None, [str(session.id)], {}]


def test_nothing_of_an_agent_is_in_redis(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")

    stored = everything_in(redis)

    assert str(session.id).encode() in stored
    assert b"canary" not in stored
    assert agent.name.encode() not in stored


def test_a_job_says_what_it_is_and_for_how_long_it_is_kept(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")

    job = job_hash(redis, session)

    assert job[b"description"].decode() == f"refinement session {session.id}"
    assert job[b"timeout"] == b"1020"
    assert job[b"result_ttl"] == b"0"
    assert job[b"failure_ttl"] == b"3600"


def test_a_session_is_committed_before_it_is_handed_over(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "api")

    db.session.rollback()

    assert redis.lrange(f"rq:queue:{ASKED}", 0, -1) == [str(session.id).encode()]
    assert (session.status, session.trigger) == ("queued", "api")
    assert session.dispatched_at is not None


def test_asking_twice_names_the_live_session_and_queues_nothing(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")

    with pytest.raises(SessionAlreadyLive) as refusal:
        refine_later(agent, "cli")

    assert refusal.value.session_id == session.id
    assert redis.llen(f"rq:queue:{ASKED}") == 1


def test_without_redis_a_session_stays_safely_queued(without_redis: Agent) -> None:
    with pytest.raises(Unreachable, match="Redis does not answer at REDIS_URL"):
        refine_later(without_redis, "cli")

    db.session.rollback()
    session = RefinementSession.live_of(without_redis)
    assert session is not None
    assert (session.status, session.dispatched_at) == ("queued", None)
    assert [record.action for record in db.session.scalars(db.select(AuditLog))] == [
        "refinement_queued"
    ]


def test_a_flushed_redis_loses_no_session(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")
    redis.flushall()

    with redis_connection() as connection:
        enqueue(session, connection)

        assert queue(ASKED, connection).job_ids == [str(session.id)]


@pytest.mark.parametrize(
    ("trigger", "name"),
    [
        ("manual", ASKED),
        ("api", ASKED),
        ("cli", ASKED),
        ("weekly", SWEPT),
        ("over_budget", SWEPT),
    ],
)
def test_what_somebody_asked_for_has_a_queue_of_its_own(
    redis: Redis, agent: Agent, trigger: Trigger, name: str
) -> None:
    session = refine_later(agent, trigger)

    waiting = {each: redis.lrange(f"rq:queue:{each}", 0, -1) for each in QUEUES}

    assert waiting == {**dict.fromkeys(QUEUES, []), name: [str(session.id).encode()]}


def test_workers_look_first_for_what_somebody_asked_for() -> None:
    assert QUEUES == (ASKED, SWEPT, REMEMBERED, TICKS)
