"""Memory tasks as jobs: dispatched by id, after all sessions, run once and never lost."""

from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from redis import Redis

from refine import clock
from refine.extensions import db
from refine.jobs.queue import RUNS, extract_later, queue
from refine.jobs.tick import run_tick
from refine.jobs.worker import work_on
from refine.models import Agent
from refine.models.agent import configuring
from tests import factories, sql

SAID = [{"role": "user", "content": "remember the canary"}]
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = factories.agent(
        name="Ada", model_id="rehearsal/ada", account=factories.account(slug="demo")
    )
    db.session.commit()
    return made


def waiting(redis: Redis) -> list[str]:
    return queue(RUNS, redis).job_ids


def journal(agent: Agent) -> list[str]:
    db.session.rollback()
    return [memory.content for memory in factories.journal(agent)]


def test_the_job_writes_the_memories(redis, agent):
    task = extract_later(agent, SAID)

    work_on(str(task.id))

    assert journal(agent) == ["remember the canary"]
    assert (task.status, task.sealed_conversation) == ("completed", None)


def test_the_tick_queues_one_reflection_a_night_in_the_agents_time_zone(redis, agent):
    agent.account.time_zone = "Europe/London"
    configuring.author(agent, "memory_reflection_prompt", "Keep what rhymes.")
    # clocks go forward on 29 March: 03:00 is 03:00 UTC before, and 02:00 UTC from then on
    nights = [datetime(2026, 3, 28, 3, tzinfo=UTC), datetime(2026, 3, 29, 2, tzinfo=UTC)]
    for night in nights:
        factories.entry(agent, created_at=night - DAY / 2, recorded_at=night - DAY / 2)
    db.session.commit()
    counted = []

    for night in nights:
        for at in (night - MINUTE, night, night + MINUTE, night + DAY / 2):
            counted.append(run_tick(at).reflections)
            for task in factories.live_tasks(agent):
                task.claim(at)
                task.finish("completed", at=at)
            db.session.commit()

    assert counted == [0, 1, 0, 0] * 2


def test_an_unknown_time_zone_stops_no_other_reflection(redis, agent):
    other = factories.agent()
    for each in (agent, other):
        configuring.author(each, "memory_reflection_prompt", "Keep what rhymes.")
        day_ago = clock.now() - DAY
        factories.entry(each, created_at=day_ago, recorded_at=day_ago)
    db.session.commit()
    sql.run(f"UPDATE accounts SET time_zone = 'No/Where' WHERE id = {other.account_id}")

    done = run_tick()

    assert done.reflections == 1
    assert done.faults > 0


def test_the_tick_ends_the_tasks_of_a_lost_worker(redis, agent):
    task = factories.extraction(agent)
    task.claim()
    factories.fall_silent(task)
    db.session.commit()

    done, again = run_tick(), run_tick()

    db.session.refresh(task)
    assert (done.lost, again.lost) == (1, 0)
    assert (task.status, task.error_kind) == ("queued", "worker_lost")


def test_the_tick_ends_tasks_that_waited_too_long(redis, agent):
    agent.paused = True
    young = factories.extraction(agent, at=clock.now() - 6 * DAY)
    old = factories.extraction(agent, at=clock.now() - 7 * DAY)
    db.session.commit()

    assert run_tick().tasks_lapsed == 1

    db.session.refresh(old)
    assert (old.status, old.sealed_conversation) == ("skipped", None)
    assert young.conversation
    assert sql.value("SELECT count(*) FROM memory_tasks WHERE conversation IS NOT NULL") == 1


def test_the_tick_retries_a_failed_task_after_its_pause(redis, agent):
    task = factories.extraction(agent)
    task.claim()
    task.give_up("the provider failed", "timeout")
    db.session.commit()

    run_tick(clock.now() + 4 * MINUTE)
    assert waiting(redis) == []
    run_tick(clock.now() + 6 * MINUTE)
    assert waiting(redis) == [str(task.id)]


@pytest.mark.parametrize("days", [8, -8])
def test_a_wrong_clock_lets_no_conversation_lapse(redis, agent, days):
    """The tick's clock runs ahead, or the one by which the conversation came in was slow."""
    agent.paused = True
    with clock.ahead(min(days, 0) * DAY):
        task = factories.extraction(agent)
    db.session.commit()

    with clock.ahead(max(days, 0) * DAY):
        assert run_tick().tasks_lapsed == 0

    db.session.refresh(task)
    assert task.conversation
