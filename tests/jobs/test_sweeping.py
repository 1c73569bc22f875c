"""Run now: a first batch at once, the others by the clock, and nobody twice."""

import itertools
from decimal import Decimal
from types import SimpleNamespace

import pytest
from flask import Flask
from redis import Redis
from sqlalchemy import func, select

from bench.measuring import statements_of
from refine import clock
from refine.errors import RowAltered
from refine.extensions import db
from refine.jobs import sweeping, tick
from refine.jobs.sweeping import SweepBatch, begin_work, go_on, run_now, sweep
from refine.jobs.tick import run_tick
from refine.models import (
    Account,
    Agent,
    AuditLog,
    RefinementSession,
    SessionAlreadyLive,
    Sweep,
    User,
)
from refine.models.integrity import verify_all
from refine.models.runs.spending import CostCaps
from tests import factories, sql

FAR_OFF = "0 0 1 1 *"


@pytest.fixture
def account(app: Flask, redis: Redis) -> Account:
    return factories.account(schedule=FAR_OFF)


@pytest.fixture
def user(account: Account) -> User:
    return factories.user(account=account)


@pytest.fixture
def agents(account: Account) -> list[Agent]:
    """Five that need a session."""
    made = [factories.agent("a memory", account=account) for _ in range(5)]
    db.session.commit()
    return made


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "BATCH", 2)


def swept_ids() -> list[int]:
    """Whose sessions were queued, each as often as it was."""
    db.session.rollback()
    return sorted(db.session.scalars(select(RefinementSession.agent_id)))


def ids_of(*agents: Agent) -> list[int]:
    return [agent.id for agent in agents]


def the_sweep() -> Sweep:
    db.session.rollback()
    return db.session.scalars(select(Sweep)).one()


def progress() -> tuple[int, int, bool]:
    """How many were queued, how many not, and whether the sweep is over."""
    made = the_sweep()
    return made.queued, made.not_queued, made.ended_at is not None


def of_account(account: Account) -> list[AuditLog]:
    mine = select(AuditLog).where(AuditLog.account_id == account.id, AuditLog.agent_id.is_(None))
    return list(db.session.scalars(mine.order_by(AuditLog.sequence)))


def a_batch() -> SweepBatch:
    return go_on(the_sweep().id, CostCaps(clock.now()))


# -- a first batch, and the rest -------------------------------------------------------------------


def test_a_small_account_is_swept_at_once(
    account: Account, user: User, agents: list[Agent]
) -> None:
    batch = run_now(account, user)

    assert [each.outcome for each in batch.outcomes] == ["queued (weekly)"] * 5
    assert batch.waiting == 0
    assert swept_ids() == ids_of(*agents)
    assert progress() == (5, 0, True)


def test_the_clock_goes_on_after_the_first_batch(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    batch = run_now(account, user)
    first, begun = swept_ids(), progress()
    done = run_tick()

    assert (batch.waiting, first, begun) == (3, ids_of(*agents[:2]), (2, 0, False))
    assert done.queued == 3
    assert swept_ids() == ids_of(*agents)
    assert progress() == (5, 0, True)
    assert run_tick().queued == 0


def test_all_sessions_of_a_sweep_are_its_users(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    run_now(account, user)
    run_tick()

    assert {each.user_id for each in db.session.scalars(select(RefinementSession))} == {user.id}
    assert {factories.records(agent)[-1].user_id for agent in agents} == {user.id}


def test_the_request_and_the_end_are_recorded_with_their_figures(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    factories.agent(account=account)
    run_now(account, user)
    run_tick()

    requested, ended = of_account(account)
    assert (requested.action, requested.user_id) == ("sweep_requested", user.id)
    assert (ended.action, ended.data) == ("sweep_ended", {"queued": 5, "not_queued": 1})
    assert {requested.auditable_id, ended.auditable_id} == {str(the_sweep().id)}
    assert [found.problem for found in verify_all() if found.problem] == []


def test_a_request_during_a_sweep_goes_on_with_it(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    waiting = [run_now(account, user).waiting for _ in range(3)]

    assert waiting == [3, 1, 0]
    assert swept_ids() == ids_of(*agents)
    assert progress() == (5, 0, True)


def test_a_request_after_a_sweep_begins_another(account: Account, user: User) -> None:
    for _ in range(2):
        run_now(account, user)

    assert len(db.session.scalars(select(Sweep)).all()) == 2


def test_sweeps_of_several_accounts_take_turns(
    account: Account,
    user: User,
    agents: list[Agent],
    small_batches: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = factories.user(account=factories.account(schedule=FAR_OFF))
    others = [factories.agent("a memory", account=other.account) for _ in range(3)]
    db.session.commit()
    run_now(account, user)
    run_now(other.account, other)

    assert Sweep.open_ids() == sorted(db.session.scalars(select(Sweep.id)))
    done = run_tick()

    assert done.queued == 3 + 1
    assert swept_ids() == ids_of(*agents, *others)


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes whenever the tick looks at its time."""
    seconds = itertools.count()
    monkeypatch.setattr(tick, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))


def test_many_works_of_one_account_do_not_hold_up_the_tick(
    account: Account, user: User, agents: list[Agent], small_batches: None, slow_clock: None
) -> None:
    for _ in range(20):
        Sweep.request_work(account, user, "refine", ids_of(*agents))
    db.session.commit()

    run_tick()

    begun = select(func.count()).select_from(Sweep).where(Sweep.after_id > 0)
    assert 0 < (db.session.scalar(begun) or 0) <= tick.LONGEST_STEP_SECONDS


def test_many_works_of_one_account_do_not_keep_others_waiting(
    account: Account, user: User, agents: list[Agent], small_batches: None, slow_clock: None
) -> None:
    other = factories.user(account=factories.account(schedule=FAR_OFF))
    others = [factories.agent("a memory", account=other.account) for _ in range(2)]
    for _ in range(20):
        Sweep.request_work(account, user, "refine", ids_of(*agents))
    Sweep.request(other.account, other)
    db.session.commit()

    run_tick()

    assert swept_ids() == ids_of(*agents[:2], *others)


# -- whatever happens ------------------------------------------------------------------------------


def test_repeats_an_interrupted_batch(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    request = Sweep.request(account, user)
    db.session.commit()
    # as far as a worker came that was killed
    sweeping._work_on(request.id, CostCaps(clock.now()), ids_of(*agents[:2]))
    db.session.rollback()

    run_tick()

    assert swept_ids() == ids_of(*agents)
    assert progress() == (5, 0, True)


def test_nobodys_turn_comes_twice(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    run_now(account, user)
    again = sweeping._work_on(the_sweep().id, CostCaps(clock.now()), ids_of(*agents[:3]))
    db.session.commit()

    assert [each.agent_id for each in again] == [agents[2].id]
    assert progress() == (3, 0, False)


def test_an_agent_that_somebody_holds_has_its_turn_last(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    with db.engine.begin() as elsewhere:
        elsewhere.exec_driver_sql(
            f"SELECT 1 FROM agents WHERE id = {agents[0].id} FOR NO KEY UPDATE"
        )
        batches = [run_now(account, user), a_batch(), a_batch()]
        without = swept_ids()
    last = a_batch()

    assert [batch.waiting for batch in batches] == [4, 2, 1]
    assert without == ids_of(*agents[1:])
    assert [each.agent_id for each in last.outcomes] == [agents[0].id]
    assert progress() == (5, 0, True)


def test_a_failing_agent_has_had_its_turn(
    account: Account, user: User, agents: list[Agent]
) -> None:
    sql.run(
        f"""CREATE FUNCTION refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.agent_id = {agents[1].id} THEN RAISE EXCEPTION 'a bad sector'; END IF;
            RETURN NEW; END $$""",
        """CREATE TRIGGER refuse_one BEFORE INSERT ON refinement_sessions
           FOR EACH ROW EXECUTE FUNCTION refuse_one()""",
    )
    try:
        batch = run_now(account, user)
    finally:
        db.session.rollback()
        sql.run("DROP FUNCTION refuse_one() CASCADE")

    outcomes = {each.agent_id: each.outcome for each in batch.outcomes}
    assert outcomes.pop(agents[1].id) == "failed: (RaiseException) a bad sector"
    assert outcomes == dict.fromkeys(swept_ids(), "queued (weekly)")
    assert progress() == (4, 1, True)


def test_a_session_whose_worker_was_lost_makes_room(account: Account, user: User) -> None:
    lost = factories.session(factories.agent("a memory", account=account))
    factories.fall_silent(lost)
    db.session.commit()

    (swept,) = run_now(account, user).outcomes

    db.session.refresh(lost)
    assert (swept.outcome, lost.status) == ("queued (weekly)", "failed")


def test_an_ended_sweep_has_no_turn(account: Account, user: User) -> None:
    run_now(account, user)

    assert a_batch() == SweepBatch([], 0)
    assert sweeping._work_on(the_sweep().id, CostCaps(clock.now()), [1]) == []


def test_an_altered_sweep_queues_nothing(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    run_now(account, user)
    other = factories.user(account=account)
    db.session.commit()
    sql.tamper(f"UPDATE sweeps SET user_id = {other.id}")

    done = run_tick()

    assert (done.queued, done.faults) == (0, 1)
    assert swept_ids() == ids_of(*agents[:2])
    with pytest.raises(RowAltered, match="Sweep"):
        a_batch()
    db.session.rollback()
    (problem,) = [found.problem for found in verify_all() if found.problem]
    assert problem.startswith("Sweep ")


def test_an_ended_sweep_that_is_put_back_queues_nothing(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    run_now(account, user)
    put_back = sql.copied(the_sweep())
    run_tick()
    put_back()

    done = run_tick()

    assert (done.queued, done.faults) == (0, 1)
    assert swept_ids() == ids_of(*agents)


# -- chosen agents ---------------------------------------------------------------------------------


def paused() -> list[int]:
    db.session.rollback()
    return sorted(db.session.scalars(select(Agent.id).where(Agent.paused)))


def test_a_work_is_done_for_the_chosen_agents_a_batch_at_a_time(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    chosen = ids_of(*agents[1:4])

    batch = begin_work(account, user, "pause", chosen)

    assert (batch.waiting, paused()) == (1, chosen[:2])
    assert [work.work for work in Sweep.open_works(account.id)] == ["pause"]
    assert [work.work for work in Sweep.open_works(None)] == ["pause"]
    run_tick()
    assert paused() == chosen
    assert progress() == (3, 0, True)
    assert Sweep.open_works(account.id) == []


def test_a_work_and_a_sweep_of_the_account_go_on_side_by_side(
    account: Account, user: User, agents: list[Agent], small_batches: None
) -> None:
    begin_work(account, user, "budget", ids_of(*agents), "77")
    run_now(account, user)

    run_tick()

    assert swept_ids() == ids_of(*agents)
    assert {agent.core_token_budget for agent in agents} == {77}


def test_the_request_of_a_work_is_recorded(
    account: Account, user: User, agents: list[Agent]
) -> None:
    begin_work(account, user, "budget", ids_of(*agents[:2]), "77")

    requested, ended = of_account(account)
    assert requested.data == {"work": "budget", "value": "77", "agents": 2}
    assert (requested.user_id, ended.action) == (user.id, "sweep_ended")
    assert [found.problem for found in verify_all() if found.problem] == []


def test_a_session_by_hand_is_refused_as_for_one_agent(account: Account, user: User) -> None:
    inactive = factories.agent("a memory", account=account, active=False)
    empty = factories.agent(account=account)
    live = factories.agent("a memory", account=account)
    session = RefinementSession.queue(live, "manual")
    db.session.commit()

    batch = begin_work(account, user, "refine", ids_of(inactive, empty, live))

    assert [each.outcome for each in batch.outcomes] == [
        "the agent is not active",
        "no core memory that a session may change",
        str(SessionAlreadyLive(session.id, "queued")),
    ]


def test_agents_of_other_accounts_are_left_alone(
    account: Account, user: User, agents: list[Agent]
) -> None:
    other = factories.agent("a memory")
    db.session.commit()

    begin_work(account, user, "pause", ids_of(agents[0], other))

    assert paused() == ids_of(agents[0])


def test_an_altered_agent_keeps_no_other_from_being_changed(
    account: Account, user: User, agents: list[Agent]
) -> None:
    sql.tamper(f"UPDATE agents SET refinement_threshold = 0.1 WHERE id = {agents[1].id}")

    batch = begin_work(account, user, "pause", ids_of(*agents))

    assert [each.agent_id for each in batch.outcomes if not each.is_done] == ids_of(agents[1])
    assert paused() == ids_of(agents[0], *agents[2:])


@pytest.mark.parametrize("altered", ["work = 'resume'", "value = '1'", "agent_ids = '{1,2,3}'"])
def test_an_altered_work_is_not_done(
    account: Account, user: User, agents: list[Agent], small_batches: None, altered: str
) -> None:
    begin_work(account, user, "pause", ids_of(*agents))
    sql.tamper(f"UPDATE sweeps SET {altered}")

    assert run_tick().faults == 1
    assert paused() == ids_of(*agents[:2])


def test_agents_that_are_so_already_are_not_changed(
    account: Account, user: User, agents: list[Agent]
) -> None:
    begin_work(account, user, "pause", ids_of(*agents))

    again = begin_work(account, user, "pause", ids_of(*agents))

    assert {each.outcome for each in again.outcomes} == {"nothing to change"}
    (record,) = db.session.scalars(
        select(AuditLog).filter_by(action="agent_settings_update", agent_id=agents[0].id)
    )
    assert record.user_id == user.id


@pytest.mark.usefixtures("small_batches")
def test_a_work_ends_when_its_user_may_no_longer_act(
    account: Account, user: User, agents: list[Agent]
) -> None:
    begin_work(account, user, "pause", [agent.id for agent in agents])
    user.role = "viewer"
    db.session.commit()

    run_tick(clock.now())

    assert [agent.paused for agent in agents] == [True, True, False, False, False]
    record = db.session.scalars(select(AuditLog).filter_by(action="sweep_ended")).one()
    assert (record.data["left_out"], record.data["reason"]) == (3, f"{user.email} is a viewer")


@pytest.mark.usefixtures("small_batches")
def test_nobody_is_put_among_those_who_were_chosen(
    account: Account, user: User, agents: list[Agent]
) -> None:
    *chosen, other = agents
    begin_work(account, user, "pause", [agent.id for agent in chosen])
    sql.run(f"UPDATE sweeps SET held_ids = ARRAY[{other.id}]")

    run_tick(clock.now())

    db.session.expire_all()
    assert [agent.paused for agent in agents] == [True, True, True, True, False]


@pytest.mark.usefixtures("small_batches")
def test_nobody_of_another_account_is_put_among_those_who_are_asked(
    account: Account, user: User, agents: list[Agent]
) -> None:
    other = factories.agent("a memory", account=factories.account(schedule=FAR_OFF))
    run_now(account, user)
    sql.run(f"UPDATE sweeps SET held_ids = ARRAY[{other.id}]")

    run_tick(clock.now())

    assert swept_ids() == ids_of(*agents)
    assert progress() == (5, 0, True)


def test_more_chosen_agents_take_no_more_statements(
    account: Account, user: User, agents: list[Agent]
) -> None:
    taken = [
        statements_of(lambda ids=ids: begin_work(account, user, "pause", ids))
        for ids in (ids_of(agents[0]), ids_of(*agents[1:]))
    ]

    assert taken[1] <= taken[0] + 2


# -- all agents ------------------------------------------------------------------------------------


def test_the_command_waits_for_agents_that_somebody_holds(
    agents: list[Agent], small_batches: None
) -> None:
    with db.engine.begin() as elsewhere:
        elsewhere.exec_driver_sql(
            f"SELECT 1 FROM agents WHERE id = {agents[0].id} FOR NO KEY UPDATE"
        )
        outcomes = sweep()
        first = next(outcomes)
    others = list(outcomes)

    assert [first.agent_id, *(each.agent_id for each in others)] == ids_of(
        *(agents[number] for number in (1, 0, 2, 3, 4))
    )


# -- how much it takes -----------------------------------------------------------------------------


def test_more_agents_take_no_more_statements(app: Flask, redis: Redis) -> None:
    taken = []
    for count in (2, 12):
        user = factories.user(account=factories.account(schedule=FAR_OFF))
        user.account.monthly_cost_cap_usd = Decimal(1)
        for _ in range(count):
            factories.agent("a memory", account=user.account)
        db.session.commit()
        account = user.account
        taken.append(statements_of(lambda account=account, user=user: run_now(account, user)))

    assert taken[0] == taken[1]
