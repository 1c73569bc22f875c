"""The job that runs one session, and the sweep that queues sessions for those who need one."""

import uuid
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from redis import Redis

from refine import clock, create_app
from refine.extensions import db
from refine.jobs.dispatch import dispatch, dispatch_if_possible
from refine.jobs.queue import AUTOMATIC, REQUESTED
from refine.jobs.runs import RunFault, refine_later, refine_session
from refine.jobs.sweeping import sweep
from refine.models import Agent, RefinementSession
from refine.models.runs.session import Trigger
from refine.models.runs.session.prospects import NOT_DUE, NOTHING_TO_REFINE
from refine.settings import Settings
from tests import factories, sql
from tests.commands import UNUSED_PORT


@pytest.fixture
def agent(app: Flask) -> Agent:
    owner = factories.agent(model_id="rehearsal/x", account=factories.account(slug="demo"))
    factories.ledger(owner, *[25] * 20)
    db.session.commit()
    return owner


def swept() -> dict[str, str]:
    """The outcome of a sweep for each agent, by name."""
    outcomes = {each.name: each.outcome for each in sweep()}
    dispatch()
    return outcomes


def test_the_job_runs_its_session_once(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")
    refine_session(str(session.id))
    db.session.refresh(session)
    ended_at = session.ended_at
    assert session.status == "completed"

    refine_session(str(session.id))

    db.session.refresh(session)
    assert session.ended_at == ended_at
    assert len(factories.journal(agent)) == 1


def test_a_failed_job_names_only_its_id_and_the_class_of_the_fault(app: Flask) -> None:
    unknown = uuid.uuid4()

    with pytest.raises(RunFault) as fault:
        refine_session(str(unknown))

    assert str(fault.value) == f"run {unknown}: NoResultFound"
    assert fault.value.__suppress_context__


def test_the_cost_cap_stops_sessions_of_the_clock_but_not_requested_ones(
    redis: Redis, agent: Agent
) -> None:
    agent.account.monthly_cost_cap_usd = Decimal(0)
    by_trigger = {}
    triggers: tuple[Trigger, ...] = ("weekly", "cli")
    for trigger in triggers:
        by_trigger[trigger] = refine_later(agent, trigger)
        refine_session(str(by_trigger[trigger].id))

    db.session.expire_all()
    weekly, requested = by_trigger.values()
    assert (weekly.status, weekly.llm_calls) == ("skipped", 0)
    assert weekly.end_reason == "the account's monthly cost cap of $0.00 is reached"
    assert requested.status == "completed"


# -- the sweep ------------------------------------------------------------------------------------


def an_agent(**fields: Any) -> Agent:
    """An agent of 100 tokens in an account of its own."""
    owner = factories.agent(**fields)
    factories.ledger(owner, *[25] * 4)
    return owner


def test_the_sweep_tells_the_outcome_for_every_agent(redis: Redis, app: Flask) -> None:
    at = clock.now()
    over_budget = an_agent(last_refinement_at=at, core_token_budget=99)
    eroded, capped, resting, unchanged = (an_agent() for _ in range(4))
    locked = factories.agent()
    factories.memory(locked, constitutional=True)
    earlier = RefinementSession.start(eroded)
    earlier.finish("completed", "the agent completed it")
    earlier.removable_tokens = earlier.removed_tokens = 1000
    eroded.last_refinement_at = None
    capped.account.monthly_cost_cap_usd = Decimal(0)
    resting.account.paused = True
    RefinementSession.start(unchanged).finish("declined", "the agent declined")
    running, waiting = factories.session(an_agent()), refine_later(an_agent(), "cli")
    redis.flushall()
    outcomes = {
        an_agent(): "queued (weekly)",
        over_budget: "queued (over_budget)",
        an_agent(last_refinement_at=at + timedelta(minutes=1)): NOT_DUE,
        an_agent(paused=True): "the agent is paused",
        an_agent(active=False): "the agent is not active",
        resting: "its account is paused",
        factories.agent(): NOTHING_TO_REFINE,
        locked: NOTHING_TO_REFINE,
        eroded: "sessions of the last 30 days removed as much as is allowed",
        capped: "the account's monthly cost cap of $0.00 is reached",
        # a sweep by hand asks even if nothing changed
        unchanged: "queued (weekly)",
        running.agent: f"the agent already has a live session, running: {running.id}",
        waiting.agent: "already waiting, dispatched again",
        # the ones before do not stop the sweep
        an_agent(): "queued (weekly)",
    }
    db.session.commit()

    found = swept()

    for agent, outcome in outcomes.items():
        assert found[agent.name].startswith(outcome)
    assert redis.lrange(f"rq:queue:{REQUESTED}", 0, -1) == [str(waiting.id).encode()]
    queued = [agent for agent, outcome in outcomes.items() if outcome.startswith("queued")]
    assert [RefinementSession.live_of(agent).trigger for agent in queued] == [
        *("weekly", "over_budget", "weekly", "weekly")
    ]
    (dispatched,) = redis.lrange(f"rq:queue:{AUTOMATIC}", 0, -1)
    assert dispatched.decode() in {str(RefinementSession.live_of(agent).id) for agent in queued}


def test_a_second_sweep_queues_no_second_session(redis: Redis, agent: Agent) -> None:
    swept()

    swept()

    assert db.session.scalars(db.select(RefinementSession)).one().agent == agent


def test_the_sweep_without_redis_keeps_what_it_queued(
    agent: Agent, environ: dict[str, str]
) -> None:
    away = {**environ, "REDIS_URL": f"redis://127.0.0.1:{UNUSED_PORT}/0"}

    with create_app(Settings.from_environ(away)).app_context():
        assert len(list(sweep())) == 1
        assert not dispatch_if_possible()
        db.session.remove()
        db.engine.dispose()

    session = RefinementSession.live_of(agent)
    assert session is not None
    assert session.status == "queued"


def test_the_sweep_continues_past_a_failing_agent(redis: Redis, agent: Agent) -> None:
    other = factories.agent("a memory of another one")
    db.session.commit()
    sql.run(
        f"""CREATE FUNCTION refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.agent_id = {agent.id} THEN RAISE EXCEPTION 'a bad sector'; END IF;
            RETURN NEW; END $$""",
        """CREATE TRIGGER refuse_one BEFORE INSERT ON refinement_sessions
           FOR EACH ROW EXECUTE FUNCTION refuse_one()""",
    )

    outcome = swept()

    sql.run("DROP FUNCTION refuse_one() CASCADE")
    assert outcome[agent.name].startswith("failed: ")
    assert outcome[other.name] == "queued (weekly)"


def test_the_sweep_continues_past_an_agent_whose_session_was_altered(
    redis: Redis, agent: Agent
) -> None:
    ended = RefinementSession.start(agent)
    ended.finish("completed", "the agent completed it")
    agent.last_refinement_at = None
    other = factories.agent("a memory of another one")
    db.session.commit()
    sql.tamper(f"UPDATE refinement_sessions SET mass_after = 0 WHERE id = '{ended.id}'")
    db.session.rollback()
    db.session.expire_all()

    outcome = swept()

    assert outcome[agent.name].startswith(f"RefinementSession {ended.id} was changed outside")
    assert outcome[other.name] == "queued (weekly)"
    assert redis.llen(f"rq:queue:{AUTOMATIC}") == 1
