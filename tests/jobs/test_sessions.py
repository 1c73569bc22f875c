"""The job that runs one session, and the sweep that queues what needs one."""

import uuid
from datetime import timedelta
from decimal import Decimal

import pytest
from flask import Flask
from redis import Redis

from refine import clock, create_app
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.queue import ASKED, SWEPT
from refine.jobs.runs import RunFault, refine_later, refine_session, sweep
from refine.models import Agent, RefinementSession
from refine.settings import Settings
from tests import factories, sql
from tests.commands import UNUSED_PORT


@pytest.fixture
def agent(app: Flask) -> Agent:
    owner = factories.agent(model_id="rehearsal/x")
    factories.ledger(owner, *[25] * 20)
    db.session.commit()
    return owner


def swept() -> dict[str, str]:
    """What became of each agent, by name."""
    return {agent.name: outcome for agent, outcome in sweep()}


def test_the_job_runs_the_session_of_its_id(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")

    refine_session(str(session.id))

    db.session.refresh(session)
    assert session.status == "completed"


def test_a_job_whose_session_was_already_run_does_nothing(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")
    refine_session(str(session.id))
    db.session.refresh(session)
    ended_at = session.ended_at

    refine_session(str(session.id))

    db.session.refresh(session)
    assert session.ended_at == ended_at
    assert len(factories.journal(agent)) == 1


def test_a_fault_leaves_the_job_with_its_class_and_the_id_alone(app: Flask) -> None:
    unknown = uuid.uuid4()

    with pytest.raises(RunFault) as fault:
        refine_session(str(unknown))

    assert str(fault.value) == f"run {unknown}: NoResultFound"
    assert fault.value.__suppress_context__


def test_a_session_of_the_clock_asks_nothing_where_the_cap_was_reached_since(
    redis: Redis, agent: Agent
) -> None:
    session = refine_later(agent, "weekly")
    agent.account.monthly_cost_cap_usd = Decimal(0)
    db.session.commit()

    refine_session(str(session.id))

    db.session.refresh(session)
    assert (session.status, session.llm_calls) == ("skipped", 0)
    assert session.end_reason == "the account's monthly cost cap of $0.00 is reached"


def test_a_session_asked_for_by_hand_runs_whatever_was_spent(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")
    agent.account.monthly_cost_cap_usd = Decimal(0)
    db.session.commit()

    refine_session(str(session.id))

    db.session.refresh(session)
    assert session.status == "completed"


# -- the sweep ------------------------------------------------------------------------------------


def test_the_sweep_queues_what_was_never_refined(redis: Redis, agent: Agent) -> None:
    outcome = swept()

    session = RefinementSession.live_of(agent)
    assert outcome == {agent.name: "queued (weekly)"}
    assert session is not None
    assert session.trigger == "weekly"
    assert redis.lrange(f"rq:queue:{SWEPT}", 0, -1) == [str(session.id).encode()]


def test_the_sweep_queues_what_is_over_its_budget(redis: Redis, agent: Agent) -> None:
    agent.last_refinement_at = clock.now()
    agent.core_token_budget = 499
    db.session.commit()

    outcome = swept()

    assert outcome == {agent.name: "queued (over_budget)"}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"last_refinement_at": clock.now() + timedelta(minutes=1)}, "needs none"),
        ({"paused": True}, "the agent is paused"),
        ({"active": False}, "the agent is not active"),
    ],
    ids=["refined", "paused", "not active"],
)
def test_the_sweep_leaves_out_agents_that_need_no_session(
    redis: Redis, agent: Agent, state: dict[str, object], reason: str
) -> None:
    for name, value in state.items():
        setattr(agent, name, value)
    db.session.commit()

    outcome = swept()

    assert outcome == {agent.name: reason}
    assert redis.keys() == []


def test_the_sweep_leaves_out_the_agents_of_a_paused_account(redis: Redis, agent: Agent) -> None:
    agent.account.paused = True
    db.session.commit()

    outcome = swept()

    assert outcome == {agent.name: "its account is paused"}


def test_the_sweep_leaves_out_agents_with_nothing_to_change(redis: Redis, app: Flask) -> None:
    empty, locked = factories.agent(), factories.agent()
    factories.memory(locked, constitutional=True)
    db.session.commit()

    outcome = swept()

    assert outcome == {empty.name: "needs none", locked.name: "needs none"}


def test_the_sweep_says_where_slow_erosion_leaves_nothing(redis: Redis, agent: Agent) -> None:
    earlier = RefinementSession.start(agent)
    earlier.finish("completed", "the agent completed it")
    earlier.removable_tokens = earlier.removed_tokens = 1000
    agent.last_refinement_at = None
    db.session.commit()

    outcome = swept()

    assert outcome == {
        agent.name: "skipped: sessions of the last 30 days removed as much as they may"
    }
    assert redis.keys() == []


def test_the_sweep_says_where_the_cost_cap_is_reached(redis: Redis, agent: Agent) -> None:
    agent.account.monthly_cost_cap_usd = Decimal(0)
    db.session.commit()

    outcome = swept()

    assert outcome == {agent.name: "skipped: the account's monthly cost cap of $0.00 is reached"}
    assert redis.keys() == []


def test_the_sweep_asks_also_where_nothing_changed(redis: Redis, agent: Agent) -> None:
    RefinementSession.start(agent).finish("declined", "the agent declined")
    db.session.commit()

    outcome = swept()

    assert outcome == {agent.name: "queued (weekly)"}


def test_the_sweep_of_one_account_leaves_the_others_alone(redis: Redis, agent: Agent) -> None:
    other = factories.agent("a memory of another one")
    db.session.commit()

    outcomes = {each.name: outcome for each, outcome in sweep(other.account)}

    assert outcomes == {other.name: "queued (weekly)"}
    assert RefinementSession.live_of(agent) is None


def test_the_sweep_names_the_session_that_runs_already(redis: Redis, agent: Agent) -> None:
    session = factories.session(agent)

    outcome = swept()

    assert str(session.id) in outcome[agent.name]
    assert "already has a live session, running" in outcome[agent.name]


def test_the_sweep_hands_over_again_what_waits(redis: Redis, agent: Agent) -> None:
    session = refine_later(agent, "cli")
    redis.flushall()

    outcome = swept()

    assert outcome == {agent.name: "was waiting; handed over again"}
    assert redis.lrange(f"rq:queue:{ASKED}", 0, -1) == [str(session.id).encode()]


def test_the_sweep_twice_makes_no_second_session(redis: Redis, agent: Agent) -> None:
    swept()

    swept()

    sessions = db.session.scalars(db.select(RefinementSession)).all()
    assert len(sessions) == 1


def test_the_sweep_goes_on_behind_an_agent_that_is_refused(redis: Redis, agent: Agent) -> None:
    live = factories.session(agent)
    other = factories.agent("a memory of another one")
    db.session.commit()

    outcome = swept()

    assert live.status == "running"
    assert outcome[other.name] == "queued (weekly)"


def test_the_sweep_without_redis_keeps_what_it_queued(
    agent: Agent, environ: dict[str, str]
) -> None:
    away = {**environ, "REDIS_URL": f"redis://127.0.0.1:{UNUSED_PORT}/0"}

    with create_app(Settings.from_environ(away)).app_context():
        with pytest.raises(Unreachable):
            swept()
        db.session.remove()
        db.engine.dispose()

    session = RefinementSession.live_of(agent)
    assert session is not None
    assert session.status == "queued"


def test_the_sweep_goes_on_behind_an_agent_whose_rows_fail(redis: Redis, agent: Agent) -> None:
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
