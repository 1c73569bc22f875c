"""Redis holds ids and nothing else; the database says what waits, and in which order."""

import json
import zlib
from collections.abc import Iterator
from datetime import timedelta
from ssl import SSLCertVerificationError

import pytest
from flask import Flask
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from refine import clock, create_app
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.queue import (
    QUEUES,
    RUNS,
    TICKS,
    announce_waiting,
    extract_later,
    queue,
    redis_connection,
    refine_later,
    request_access_later,
    take,
    waiting_runs,
)
from refine.jobs.worker import work_on
from refine.models import Agent, AuditLog
from refine.models.runs.access.asking_rules import AccessTerms
from refine.settings import Settings
from tests import factories
from tests.commands import UNUSED_PORT
from tests.in_redis import everything_in

SAID = [{"role": "user", "content": "remember the canary"}]
TERMS = AccessTerms("failed_session", "the canary fell silent, and I wonder why", 30)


@pytest.fixture
def agent(app: Flask) -> Agent:
    owner = factories.agent("the canary sings at dawn", system_prompt="You are a canary.")
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


def ids_in(redis: Redis) -> dict[str, list[str]]:
    """What each queue holds, if it holds anything."""
    return {name: ids for name in QUEUES if (ids := queue(name, redis).job_ids)}


def waiting(limit: int = 9, automatic_limit: int = 9) -> list[str]:
    found = waiting_runs(clock.now(), limit, automatic_limit=automatic_limit)
    return [str(run.id) for run in found]


def test_each_kind_of_run_is_announced_by_its_id_alone(redis, agent):
    reader = factories.user(account=agent.account)
    for run in (
        refine_later(agent, "cli"),
        extract_later(agent, SAID),
        request_access_later(agent, reader, TERMS),
    ):
        job = redis.hgetall(f"rq:job:{run.id}")
        payload = json.loads(zlib.decompress(job[b"data"]))
        assert payload == ["refine.jobs.worker.work_on", None, [str(run.id)], {}]
        assert job[b"description"].decode() == f"run {run.id}"
    stored = everything_in(redis)
    assert not any(word in stored for word in (b"canary", agent.name.encode(), b"failed_session"))


def test_without_redis_a_session_stays_safely_queued(without_redis):
    session = refine_later(without_redis, "cli")

    db.session.rollback()
    assert session.status == "queued"
    assert [record.action for record in db.session.scalars(db.select(AuditLog))] == [
        "refinement_queued"
    ]


def test_runs_lost_by_a_flushed_redis_are_announced_again_once(redis, agent):
    task = extract_later(agent, SAID)
    swept = refine_later(factories.agent("a memory"), "weekly")
    asked = refine_later(agent, "api")
    redis.flushall()

    assert [announce_waiting(clock.now()) for _ in range(2)] == [3, 0]
    assert ids_in(redis) == {RUNS: [str(run.id) for run in (asked, swept, task)]}


def test_requested_runs_come_first_and_automatic_ones_if_there_is_room(redis, agent):
    task = extract_later(agent, SAID)
    swept = refine_later(factories.agent("a memory"), "over_budget")
    asked = refine_later(agent, "manual")
    grant = request_access_later(agent, factories.user(account=agent.account), TERMS)

    assert waiting() == [str(run.id) for run in (grant, asked, swept, task)]
    assert waiting(automatic_limit=0) == [str(run.id) for run in (grant, asked)]


def test_runs_claimed_or_held_by_another_process_do_not_wait(redis, agent):
    held = factories.session(agent)
    claimed = refine_later(factories.agent("a memory"), "cli")
    db.session.commit()

    with db.engine.begin() as elsewhere:
        lock = f"SELECT FROM refinement_sessions WHERE id = '{claimed.id}' FOR UPDATE"
        elsewhere.exec_driver_sql(lock)
        assert waiting() == []
    assert waiting() == [str(claimed.id)]
    assert held.is_held


def test_conversations_of_an_agent_wait_one_after_another_and_for_their_time(redis, agent):
    first, second = extract_later(agent, SAID), extract_later(agent, SAID)
    assert waiting() == [str(first.id)]

    first.claim()
    db.session.commit()
    assert waiting() == []
    first.finish("completed")
    second.due_at = clock.now() + timedelta(minutes=5)
    db.session.commit()

    assert waiting() == []


def test_taking_an_id_leaves_nothing_of_its_job(redis, agent):
    refine_later(agent, "cli")
    redis.rpush(f"rq:queue:{TICKS}", "tick", "\xff no id of ours")
    redis.hset("rq:job:tick", "data", "rq-scheduler's own")

    assert [take(QUEUES, None) for _ in range(4)] == [RUNS, TICKS, TICKS, None]
    assert redis.keys("rq:job:*") == [b"rq:job:tick"]


def test_an_unknown_certificate_is_named_with_its_remedy_and_no_password(app):
    distrust = SSLCertVerificationError(1, "rediss://:canary@h")
    distrust.verify_message = "self-signed certificate, for 'h'"
    fault = RedisConnectionError("Error 1 connecting to h:6380")
    fault.__context__ = distrust

    said = "not trusted .self-signed certificate.; set"
    with pytest.raises(Unreachable, match=said) as refusal, redis_connection():
        raise fault

    assert "canary" not in str(refusal.value)


def test_the_cost_cap_stops_sessions_of_the_clock_but_not_requested_ones(app, redis):
    capped = factories.account(slug="demo", monthly_cost_cap_usd=0)
    agent = factories.agent("a memory", "another", model_id="rehearsal/x", account=capped)
    sessions = []
    for trigger in ("weekly", "cli"):
        sessions.append(refine_later(agent, trigger))
        work_on(str(sessions[-1].id))

    db.session.expire_all()
    assert [(each.status, each.llm_calls > 0) for each in sessions] == [
        ("skipped", False),
        ("completed", True),
    ]
