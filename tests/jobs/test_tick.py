"""The tick: every due agent gets one session a slot, whatever clocks and servers do."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from flask import Flask
from redis import Redis
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.jobs import tick
from refine.jobs.queue import RUNS, queue
from refine.jobs.tick import INTERVAL, TickResult, run_tick
from refine.models import Account, Agent, PeriodicWork, RefinementSession, SignIn
from refine.models.runs.run import LOST_AFTER
from tests import editing, factories, sql
from tests.chains import verify_agent
from tests.commands import UNUSED_PORT
from tests.sql import statements_of

# Monday 04:00, the platform's slot.
SLOT = datetime(2026, 3, 2, 4, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(weeks=1)
# A schedule with no slot during a test.
NEW_YEAR = "0 0 1 1 *"
BAD_SECTOR = "RAISE EXCEPTION 'a bad sector'"

Clock = time_machine.Traveller


@pytest.fixture
def time(app: Flask, redis: Redis) -> Iterator[Clock]:
    """A stopped clock, two hours before SLOT."""
    with time_machine.travel(SLOT - 2 * HOUR, tick=False) as traveller:
        yield traveller


@pytest.fixture
def account(time: Clock) -> Account:
    """An account whose next slot is SLOT."""
    return factories.account(next_due_at=SLOT)


@pytest.fixture
def agent(account: Account) -> Agent:
    return an_agent(account)


@pytest.fixture
def over_budget(time: Clock) -> Agent:
    """An agent over its budget, far from any slot."""
    return an_agent(factories.account(schedule=NEW_YEAR), core_token_budget=99)


def an_agent(account: Account, **fields: Any) -> Agent:
    """An agent of 100 tokens."""
    owner = factories.agent(account=account, **fields)
    factories.ledger(owner, *[25] * 4)
    db.session.commit()
    return owner


def sessions_of(agent: Agent) -> list[RefinementSession]:
    """All committed ones, oldest first."""
    db.session.rollback()
    mine = select(RefinementSession).where(RefinementSession.agent_id == agent.id)
    return list(db.session.scalars(mine.order_by(RefinementSession.created_at)))


def session_of(agent: Agent) -> RefinementSession:
    (session,) = sessions_of(agent)
    return session


def slots_of(agent: Agent) -> list[datetime | None]:
    return [session.slot_at for session in sessions_of(agent)]


def tick_at(time: Clock, *instants: datetime) -> list[TickResult]:
    """Tick at each of these instants."""
    done = []
    for at in instants:
        time.move_to(at)
        done.append(run_tick())
    return done


def claimed(agent: Agent) -> RefinementSession:
    """The agent's live session, as a worker claims it."""
    session = RefinementSession.live_of(agent)
    assert session is not None
    session.claim()
    session.take_snapshot()
    db.session.commit()
    return session


def declines(agent: Agent) -> None:
    claimed(agent).finish("declined", "the agent declined")
    db.session.commit()


def fails(agent: Agent) -> None:
    claimed(agent).give_up("the provider did not answer")
    db.session.commit()


def removes_one(agent: Agent) -> None:
    session = claimed(agent)
    editing.delete(session, db.session.scalars(agent.ledger.core()).all()[0].id)
    editing.complete(session, "One went.")
    db.session.commit()


def a_moment_later_saves_one(time: Clock, agent: Agent) -> None:
    time.shift(timedelta(seconds=1))
    agent.ledger.remember(factories.text_of(25), "core")
    db.session.commit()


@pytest.fixture
def refused(agent: Agent) -> Iterator[Agent]:
    """An agent whose sessions the database refuses."""
    writes = "BEFORE INSERT OR UPDATE ON refinement_sessions"
    with sql.trigger(writes, BAD_SECTOR, when=f"NEW.agent_id = {agent.id}"):
        yield agent


# -- a slot ---------------------------------------------------------------------------------------


def test_every_agent_gets_a_session_at_its_slot(time, account):
    agents = [an_agent(account) for _ in range(3)]

    first, second = tick_at(time, SLOT, SLOT)

    sessions = [session_of(agent) for agent in agents]
    (record,) = factories.records(agents[0])
    assert (first, second) == (TickResult(queued=3, announced=3), TickResult())
    assert {
        (each.trigger, each.status, each.slot_at, each.attempt, each.created_at)
        for each in sessions
    } == {("weekly", "queued", SLOT, 1, SLOT)}
    assert account.next_due_at == SLOT + WEEK
    assert (record.action, record.user_id) == ("refinement_queued", None)
    assert (record.session_id, record.created_at) == (sessions[0].id, SLOT)


def test_an_ended_session_is_the_only_one_until_the_next_slot(time, account):
    agents = [an_agent(account), an_agent(account)]
    tick_at(time, SLOT)
    for agent, end in zip(agents, (declines, removes_one), strict=True):
        end(agent)
        a_moment_later_saves_one(time, agent)

    tick_at(time, SLOT + HOUR, SLOT + WEEK - MINUTE, SLOT + WEEK)

    assert [slots_of(agent) for agent in agents] == [[SLOT, SLOT + WEEK]] * 2


@pytest.mark.parametrize(
    ("zone", "schedule", "first", "following"),
    [
        ("Europe/London", "30 1 * * *", "2026-03-29T02:00+01:00", "2026-03-30T01:30+01:00"),
        ("America/New_York", "15 2 * * *", "2026-03-08T03:00-04:00", "2026-03-09T02:15-04:00"),
        ("Europe/London", "30 1 * * *", "2026-10-25T01:30+01:00", "2026-10-26T01:30+00:00"),
        ("America/New_York", "15 1 * * *", "2026-11-01T01:15-04:00", "2026-11-02T01:15-05:00"),
    ],
    ids=["London skips", "New York skips", "London repeats", "New York repeats"],
)
def test_a_slot_runs_once_across_a_clock_change(time, zone, schedule, first, following):
    expected = [datetime.fromisoformat(slot).astimezone(UTC) for slot in (first, following)]
    time.move_to(expected[0] - HOUR)
    agent = an_agent(factories.account(schedule=schedule, time_zone=zone))

    for slot_at in expected:
        tick_at(time, slot_at - MINUTE, slot_at)
        declines(agent)
        a_moment_later_saves_one(time, agent)
        tick_at(time, slot_at + HOUR, slot_at + 2 * HOUR)

    assert slots_of(agent) == expected
    assert [session.created_at for session in sessions_of(agent)] == expected


# -- ticks that come late, twice, or at once ------------------------------------------------------


@pytest.mark.parametrize("late", [timedelta(seconds=59), 6 * DAY])
def test_a_late_tick_serves_the_missed_slot(time, agent, late):
    tick_at(time, SLOT + late)

    session = session_of(agent)
    assert (session.slot_at, session.created_at) == (SLOT, SLOT + late)
    assert agent.account.next_due_at == SLOT + WEEK


def test_a_clock_that_goes_back_repeats_nothing(time, agent):
    tick_at(time, SLOT)
    declines(agent)
    a_moment_later_saves_one(time, agent)

    for at in (SLOT - timedelta(seconds=2), SLOT, SLOT + MINUTE):
        run_tick(at)

    assert slots_of(agent) == [SLOT]


def test_concurrent_ticks_queue_one_session_for_each_agent(time, app):
    accounts = [factories.account(next_due_at=SLOT) for _ in range(2)]
    agents = [an_agent(account) for account in accounts for _ in range(8)]
    over_budget = an_agent(factories.account(schedule=NEW_YEAR), core_token_budget=99)
    time.move_to(SLOT)
    together, done = threading.Barrier(3), []

    def race() -> None:
        with app.app_context():
            together.wait(10)
            done.append(run_tick())

    threads = [threading.Thread(target=race) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run_tick()

    assert [slots_of(agent) for agent in agents] == [[SLOT]] * 16
    assert session_of(over_budget).trigger == "over_budget"
    assert sum(each.queued for each in done) == 17
    assert [account.next_due_at for account in accounts] == [SLOT + WEEK] * 2


def test_a_locked_agent_is_left_to_the_next_tick(time, account):
    held, free = an_agent(account), an_agent(account)
    time.move_to(SLOT)

    with db.engine.begin() as elsewhere:
        elsewhere.exec_driver_sql(f"SELECT 1 FROM agents WHERE id = {held.id} FOR NO KEY UPDATE")
        first = run_tick()
    second = run_tick()

    assert (first.queued, second.queued, first.faults, second.faults) == (1, 1, 0, 0)
    assert [slots_of(each) for each in (held, free)] == [[SLOT], [SLOT]]
    assert account.next_due_at == SLOT + WEEK


def test_steps_that_take_too_long_continue_in_the_next_tick(time, agent, over_budget, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(tick, "LONGEST_STEP_SECONDS", 0.0)
        (first,) = tick_at(time, SLOT)
    (second,) = tick_at(time, SLOT + MINUTE)

    assert (first.queued, second.queued) == (0, 2)
    assert slots_of(agent) == [SLOT]
    assert session_of(over_budget).trigger == "over_budget"


def test_more_agents_take_no_more_statements(time, subtests):
    kinds: dict[str, dict[str, Any]] = {
        "at a slot": {"next_due_at": SLOT},
        "skipped at a slot": {"next_due_at": SLOT, "monthly_cost_cap_usd": 0},
        "over budget": {"schedule": NEW_YEAR},
    }
    for kind, fields in kinds.items():
        taken = []
        # the first tick also does what is due once a day
        for agents in (1, 2, 12):
            time.move_to(SLOT - 2 * HOUR)
            account = factories.account(**fields)
            owners = [an_agent(account, core_token_budget=99) for _ in range(agents)]
            time.move_to(SLOT)
            sql.run("UPDATE periodic_work SET at = at - interval '1 day'")
            taken.append(statements_of(run_tick))
            assert all(session_of(owner) for owner in owners)
        with subtests.test(kind):
            assert taken[1] == taken[2]


def test_more_retries_and_reflections_take_no_more_statements(time):
    taken = []
    for agents in (1, 2, 12):
        time.move_to(SLOT - DAY)
        account = factories.account(schedule=NEW_YEAR)
        for _ in range(agents):
            agent = an_agent(account, core_token_budget=99, reflects_daily=True)
            agent.ledger.remember("it rained", "journal")
            RefinementSession.queue(agent, "over_budget")
            fails(agent)
        time.move_to(SLOT)
        done: list[TickResult] = []
        taken.append(statements_of(lambda done=done: done.append(run_tick())))
        assert (done[0].queued, done[0].reflections) == (agents, agents)

    assert taken[1] == taken[2]


# -- accounts and agents that come, change and rest -----------------------------------------------


def test_a_live_session_at_the_slot_keeps_it_open_and_serves_it_if_answered(time):
    slots = {"declined": [None], "skipped": [None, SLOT]}
    agents = [an_agent(factories.account(next_due_at=SLOT)) for _ in slots]
    live = [RefinementSession.queue(agent, "manual") for agent in agents]
    db.session.commit()
    tick_at(time, SLOT)
    were_due_at = [agent.account.next_due_at for agent in agents]
    time.shift(MINUTE)
    for session, status in zip(live, slots, strict=True):
        session.finish(status, "it ended")
    db.session.commit()

    run_tick()

    assert were_due_at == [SLOT, SLOT]
    assert [slots_of(agent) for agent in agents] == list(slots.values())
    assert [agent.account.next_due_at for agent in agents] == [SLOT + WEEK] * 2


def test_a_failing_agent_keeps_its_slot_open_for_an_hour(time, refused):
    tick_at(time, SLOT + HOUR)
    was_due_at = refused.account.next_due_at

    tick_at(time, SLOT + HOUR + MINUTE)

    assert was_due_at == SLOT
    assert refused.account.next_due_at == SLOT + WEEK


def test_a_slot_of_a_paused_account_is_not_served_later(time, agent):
    agent.account.paused = True
    db.session.commit()
    tick_at(time, SLOT)
    agent.account.paused = False
    db.session.commit()

    tick_at(time, SLOT + HOUR, SLOT + WEEK)

    assert slots_of(agent) == [SLOT + WEEK]


# -- failures -------------------------------------------------------------------------------------


def test_an_agents_failure_affects_no_other_and_its_slot_is_served_later(time, refused, caplog):
    others = [an_agent(refused.account), an_agent(factories.account(next_due_at=SLOT))]

    (first,) = tick_at(time, SLOT)
    was_due_at = refused.account.next_due_at
    db.session.commit()
    sql.run("DROP FUNCTION act() CASCADE")
    (second,) = tick_at(time, SLOT + MINUTE)

    assert (first.queued, first.faults, was_due_at) == (2, 1, SLOT)
    assert f"a bad sector', 'agent_id': {refused.id}" in caplog.text
    assert (second.queued, second.faults) == (1, 0)
    assert [slots_of(agent) for agent in (refused, *others)] == [[SLOT]] * 3
    assert refused.account.next_due_at == SLOT + WEEK


def test_a_failing_account_affects_no_other(time):
    broken, unknown_zone, sound = (factories.account(next_due_at=SLOT) for _ in range(3))
    agents = [an_agent(broken), an_agent(sound)]
    an_agent(unknown_zone)
    sql.run(f"UPDATE accounts SET time_zone = 'Mars/Olympus' WHERE id = {unknown_zone.id}")
    db.session.expire_all()

    with sql.trigger("BEFORE UPDATE ON accounts", BAD_SECTOR, when=f"NEW.id = {broken.id}"):
        (done,) = tick_at(time, SLOT)

    assert done.faults == 3
    assert [slots_of(agent) for agent in agents] == [[SLOT], [SLOT]]
    assert sound.next_due_at == SLOT + WEEK
    assert PeriodicWork.age("tick") == timedelta(0)


def test_without_redis_sessions_are_queued_and_announced_later(
    time, agent, redis, environ, set_setting
):
    set_setting(redis_url=f"redis://127.0.0.1:{UNUSED_PORT}/0")
    (first,) = tick_at(time, SLOT)
    set_setting(redis_url=environ["REDIS_URL"])
    (second,) = tick_at(time, SLOT + MINUTE)

    assert first == TickResult(queued=1, faults=1)
    assert second == TickResult(announced=1)
    assert queue(RUNS, redis).job_ids == [str(session_of(agent).id)]


# -- skipped at a slot ----------------------------------------------------------------------------


def reach_the_cap(agent: Agent) -> None:
    agent.account.monthly_cost_cap_usd = Decimal(0)


def erode(agent: Agent) -> None:
    earlier = RefinementSession.start(agent)
    earlier.finish("completed", "the agent completed it")
    earlier.removable_tokens = earlier.removed_tokens = 100


def remove_nothing(agent: Agent) -> None:
    editing.complete(RefinementSession.start(agent), "All is well.")


FORBIDDEN = {
    reach_the_cap: "the account's monthly cost cap of $0.00 is reached",
    erode: "sessions of the last 30 days removed as much as is allowed",
    remove_nothing: "nothing changed since the last session, which removed nothing",
}


def test_a_forbidden_session_is_skipped_with_its_reason(time, redis):
    agents = [an_agent(factories.account(next_due_at=SLOT)) for _ in FORBIDDEN]
    for agent, forbid in zip(agents, FORBIDDEN, strict=True):
        forbid(agent)
    db.session.commit()

    done = tick_at(time, SLOT, SLOT + HOUR)

    assert done == [TickResult(skipped=3), TickResult()]
    for agent, reason in zip(agents, FORBIDDEN.values(), strict=True):
        session, record = sessions_of(agent)[-1], factories.records(agent)[-1]
        assert (session.status, session.end_reason, session.slot_at) == ("skipped", reason, SLOT)
        assert (session.llm_calls, session.ended_at) == (0, SLOT)
        assert (record.action, record.data["reason"]) == ("memory_refinement_skipped", reason)
    assert redis.keys() == []


# -- over the budget ------------------------------------------------------------------------------


def test_budgets_are_checked_once_an_hour(time):
    run_tick()
    checked_at = datetime.now(UTC)
    agent = an_agent(factories.account(schedule=NEW_YEAR), core_token_budget=99)

    done = tick_at(time, checked_at + MINUTE, checked_at + HOUR - MINUTE, checked_at + HOUR)

    session = session_of(agent)
    assert [each.queued for each in done] == [0, 0, 1]
    assert (session.trigger, session.created_at) == ("over_budget", checked_at + HOUR)
    assert (session.slot_at, session.attempt) == (None, 1)


def test_an_agent_over_its_budget_is_asked_after_its_cool_down(time, over_budget):
    began_at = datetime.now(UTC)
    ends = iter([declines, declines, removes_one, removes_one])

    hours = (0, 1, 40, 48, 49, 48 + 88, 48 + 96, 48 + 96 + 16, 48 + 96 + 24)
    for done in (tick_at(time, began_at + hour * HOUR)[0] for hour in hours):
        if done.queued:
            next(ends)(over_budget)
            a_moment_later_saves_one(time, over_budget)

    asked = [(session.created_at - began_at) / HOUR for session in sessions_of(over_budget)]
    assert asked == [0, 48, 48 + 96, 48 + 96 + 24]


def test_a_budget_check_continues_after_the_last_agent_checked(time, over_budget):
    behind = an_agent(over_budget.account, core_token_budget=99)
    PeriodicWork.begin("budget_check", every=HOUR, at=datetime.now(UTC))
    PeriodicWork.reached("budget_check", over_budget.id)
    db.session.commit()

    done = tick_at(time, datetime.now(UTC), datetime.now(UTC) + MINUTE)

    assert [each.queued for each in done] == [1, 0]
    assert sessions_of(over_budget) == []
    assert session_of(behind).trigger == "over_budget"


# -- retries --------------------------------------------------------------------------------------


def test_a_failed_session_is_retried_three_times_with_growing_pauses(time, agent):
    minutes = (0, 4, 5, 34, 35, 154, 155, 300, WEEK / MINUTE)
    for minute in minutes:
        (done,) = tick_at(time, SLOT + minute * MINUTE)
        if done.queued:
            fails(agent)

    sessions = sessions_of(agent)
    created = [(session.created_at - SLOT) / MINUTE for session in sessions]
    assert created == [0, 5, 5 + 30, 5 + 30 + 120, WEEK / MINUTE]
    assert [session.attempt for session in sessions] == [1, 2, 3, 4, 1]
    assert slots_of(agent) == [*[SLOT] * 4, SLOT + WEEK]
    assert {session.trigger for session in sessions} == {"weekly"}


def test_a_failure_is_not_retried_after_the_next_slot(time, account):
    agent = an_agent(account, core_token_budget=99)
    time.move_to(SLOT - MINUTE)
    RefinementSession.queue(agent, "over_budget")
    fails(agent)
    account.paused = True
    db.session.commit()
    tick_at(time, SLOT)
    account.paused = False
    db.session.commit()

    tick_at(time, SLOT + 10 * MINUTE, SLOT + HOUR)

    assert {session.attempt for session in sessions_of(agent)} == {1}


# -- sessions whose worker was lost ---------------------------------------------------------------


def test_lost_sessions_end_by_whether_they_changed_anything(time, account):
    endings = {(0, False): "failed", (1, False): "incomplete", (0, True): "failed"}
    endings[1, True] = "incomplete"
    sessions = []
    for edits, is_erased in endings:
        session = factories.session(an_agent(account))
        for memory in db.session.scalars(session.agent.ledger.core().limit(edits)).all():
            editing.delete(session, memory.id)
        if is_erased:
            factories.erase(session.agent)
        sessions.append(session)
        factories.fall_silent(session)
    db.session.commit()

    done, again = run_tick(), run_tick()

    assert (done, again) == (TickResult(lost=4), TickResult())
    for session, ((edits, is_erased), status) in zip(sessions, endings.items(), strict=True):
        db.session.refresh(session)
        last = factories.records(session.agent)[-1]
        assert (session.status, session.error_kind) == (status, "worker_lost")
        assert (session.end_reason, session.lease_token) == ("the worker was lost", None)
        assert last.action == f"memory_refinement_{status}"
        assert last.data["mutation_count"] == edits
        assert not is_erased or last.sealed == {}
        assert verify_agent(session.agent).problem is None
        next_one = RefinementSession.queue(session.agent, "manual") if not is_erased else None
        assert RefinementSession.live_of(session.agent) is next_one


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_tick_whose_clock_is_wrong_ends_no_session(time, agent, minutes):
    session = factories.session(agent)
    time.shift(minutes * MINUTE)

    done = run_tick()

    db.session.refresh(session)
    assert (done.lost, session.status) == (0, "running")


def test_a_lost_session_ends_within_two_minutes():
    held_up = timedelta(seconds=3 * tick.LONGEST_STEP_SECONDS)

    assert LOST_AFTER + INTERVAL + held_up < timedelta(minutes=2)


# -- what was over for long -----------------------------------------------------------------------


def test_old_sign_ins_are_deleted_once_a_day(time, account):
    user = factories.user(account=account)
    SignIn.begin(user)
    db.session.commit()
    time.shift(9 * WEEK)
    first = run_tick().pruned
    SignIn.begin(user, clock.now() - 9 * WEEK)
    db.session.commit()
    time.shift(DAY - MINUTE)
    same_day = run_tick().pruned
    time.shift(MINUTE)

    assert (first, same_day, run_tick().pruned) == (1, 0, 1)


# -- the mark of the clock ------------------------------------------------------------------------


def test_a_tick_with_nothing_due_only_leaves_its_mark(time, agent, redis):
    run_tick()
    committed = sql.snapshot()
    time.shift(MINUTE)
    was_marked = PeriodicWork.age("tick")

    done = run_tick()

    after = sql.snapshot()
    assert done == TickResult()
    assert redis.keys() == []
    changed = {table for table in after if after[table] != committed[table]}
    assert changed == {"periodic_work"}
    assert (was_marked, PeriodicWork.age("tick")) == (MINUTE, timedelta(0))
