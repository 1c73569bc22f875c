"""The tick: every agent that is due gets one session a slot, whatever clocks and servers do."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from flask import Flask
from redis import Redis
from rq.timeouts import JobTimeoutException, UnixSignalDeathPenalty
from sqlalchemy import select

from refine.extensions import db
from refine.jobs import tick
from refine.jobs.tick import INTERVAL, TickResult, run_tick
from refine.models import Account, Agent, ClockMark, LeaseLost, RefinementSession
from refine.models.integrity import verify_agent
from refine.models.runs.run import LOST_AFTER
from refine.models.runs.session import Trigger, editing
from refine.tools import RefinementTool
from tests import factories, sql
from tests.commands import UNUSED_PORT

# Monday 04:00, the platform's slot.
SLOT = datetime(2026, 3, 2, 4, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEK = timedelta(weeks=1)
# A schedule whose slots come nowhere near what a test is about.
NEW_YEAR = "0 0 1 1 *"

Clock = time_machine.Traveller


@pytest.fixture
def time(app: Flask, redis: Redis) -> Iterator[Clock]:
    """The clock, which stands two hours before a slot until it is moved."""
    with time_machine.travel(SLOT - 2 * HOUR, tick=False) as traveller:
        yield traveller


@pytest.fixture
def account(time: Clock) -> Account:
    """An account whose next slot is set."""
    made = factories.account()
    db.session.commit()
    run_tick()
    return made


@pytest.fixture
def agent(account: Account) -> Agent:
    return an_agent(account)


@pytest.fixture
def over_budget(time: Clock) -> Agent:
    """An agent over its budget, an hour after the last check, far from any slot."""
    run_tick()
    time.shift(HOUR)
    return an_agent(factories.account(schedule=NEW_YEAR), core_token_budget=99)


@pytest.fixture
def redis_away(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Redis does not answer; undo it to have it answer again."""
    away = replace(
        app.extensions["refine.settings"], redis_url=f"redis://127.0.0.1:{UNUSED_PORT}/0"
    )
    with monkeypatch.context() as patch:
        patch.setitem(app.extensions, "refine.settings", away)
        yield patch


def an_agent(account: Account, **fields: Any) -> Agent:
    """An agent of 100 tokens."""
    owner = factories.agent(account=account, **fields)
    factories.ledger(owner, *[25] * 4)
    db.session.commit()
    return owner


def sessions_of(agent: Agent) -> list[RefinementSession]:
    """All of them, the oldest first, as committed."""
    db.session.rollback()
    mine = select(RefinementSession).where(RefinementSession.agent_id == agent.id)
    return list(db.session.scalars(mine.order_by(RefinementSession.created_at)))


def session_of(agent: Agent) -> RefinementSession:
    (session,) = sessions_of(agent)
    return session


def slots_of(agent: Agent) -> list[datetime | None]:
    return [session.slot_at for session in sessions_of(agent)]


def tick_until(time: Clock, until: datetime, every: timedelta) -> Iterator[TickResult]:
    """Tick now, and again and again up to this instant."""
    while (at := datetime.now(UTC)) <= until:
        yield run_tick()
        time.move_to(at + every)


def claimed(agent: Agent) -> RefinementSession:
    """The live session of the agent, as a worker has it that has just begun."""
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
    """An agent for which the database takes no session."""
    sql.run(
        f"""CREATE FUNCTION refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.agent_id = {agent.id} THEN RAISE EXCEPTION 'a bad sector'; END IF;
            RETURN NEW; END $$""",
        """CREATE TRIGGER refuse_one BEFORE INSERT OR UPDATE ON refinement_sessions
           FOR EACH ROW EXECUTE FUNCTION refuse_one()""",
    )
    yield agent
    db.session.rollback()
    sql.run("DROP FUNCTION IF EXISTS refuse_one() CASCADE")


@pytest.fixture
def refused_accounts(app: Flask) -> Iterator[None]:
    """The database takes no change of any account, so that no slot can be set."""
    sql.run(
        """CREATE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           RAISE EXCEPTION 'a bad sector'; END $$""",
        "CREATE TRIGGER refuse_all BEFORE UPDATE ON accounts EXECUTE FUNCTION refuse_all()",
    )
    yield
    db.session.rollback()
    sql.run("DROP FUNCTION refuse_all() CASCADE")


# -- a slot ---------------------------------------------------------------------------------------


def test_before_its_slot_nobody_is_asked(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT - timedelta(microseconds=1))

    done = run_tick()

    assert done == TickResult()
    assert sessions_of(agent) == []


def test_at_its_slot_every_agent_gets_a_session(time: Clock, account: Account) -> None:
    agents = [an_agent(account) for _ in range(3)]
    time.move_to(SLOT)

    done = run_tick()

    sessions = [session_of(agent) for agent in agents]
    assert done == TickResult(queued=3, dispatched=1)
    assert [
        (session.trigger, session.status, session.slot_at, session.attempt) for session in sessions
    ] == [("weekly", "queued", SLOT, 1)] * 3
    assert [session.created_at for session in sessions] == [SLOT] * 3
    assert account.next_due_at == SLOT + WEEK


def test_a_session_of_a_slot_is_recorded(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT)

    run_tick()

    (record,) = factories.records(agent)
    assert (record.action, record.user_id) == ("refinement_queued", None)
    assert (record.session_id, record.created_at) == (session_of(agent).id, SLOT)


def test_the_job_that_the_scheduler_knows_is_a_tick(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT)

    tick.tick()

    assert slots_of(agent) == [SLOT]


def test_a_second_tick_does_nothing(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT)
    run_tick()
    committed = sql.snapshot()

    done = run_tick()

    assert done == TickResult()
    assert sql.snapshot() == committed


def test_many_ticks_in_a_minute_make_one_session(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT)

    queued = [done.queued for done in tick_until(time, SLOT + MINUTE, timedelta(seconds=6))]

    assert queued == [1, *[0] * 10]
    assert slots_of(agent) == [SLOT]


@pytest.mark.slow
@pytest.mark.parametrize("end", [declines, removes_one])
def test_a_session_that_has_ended_is_the_only_one_until_the_next_slot(
    time: Clock, agent: Agent, end: Any
) -> None:
    time.move_to(SLOT)
    run_tick()
    end(agent)
    a_moment_later_saves_one(time, agent)

    for _ in tick_until(time, SLOT + WEEK + HOUR, DAY):
        pass

    assert slots_of(agent) == [SLOT, SLOT + WEEK]


def test_every_account_has_its_own_slot(time: Clock) -> None:
    schedules = {"0 4 * * 1": "UTC", "0 5 * * 1": "Europe/London", "30 9 * * *": "Asia/Kathmandu"}
    agents = [
        an_agent(factories.account(schedule=schedule, time_zone=zone))
        for schedule, zone in schedules.items()
    ]

    for _ in tick_until(time, SLOT + HOUR, HOUR / 4):
        pass

    assert [slots_of(agent) for agent in agents] == [
        [SLOT],
        [SLOT + HOUR],
        [SLOT - timedelta(minutes=15)],
    ]


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
def test_across_a_clock_change_a_slot_is_run_once(
    time: Clock, zone: str, schedule: str, first: str, following: str
) -> None:
    expected = [datetime.fromisoformat(slot).astimezone(UTC) for slot in (first, following)]
    time.move_to(expected[0] - HOUR)
    agent = an_agent(factories.account(schedule=schedule, time_zone=zone))

    for slot_at in expected:
        time.move_to(slot_at - HOUR)
        for done in tick_until(time, slot_at + 2 * HOUR, HOUR / 2):
            if done.queued:
                declines(agent)
                a_moment_later_saves_one(time, agent)

    assert slots_of(agent) == expected
    assert [session.created_at for session in sessions_of(agent)] == expected


# -- ticks that come late, twice, or at once ------------------------------------------------------


@pytest.mark.parametrize("late", [timedelta(seconds=59), 5 * HOUR, 6 * DAY])
def test_a_late_tick_runs_the_slot_that_has_passed(
    time: Clock, agent: Agent, late: timedelta
) -> None:
    time.move_to(SLOT + late)

    run_tick()

    session = session_of(agent)
    assert (session.slot_at, session.created_at) == (SLOT, SLOT + late)
    assert agent.account.next_due_at == SLOT + WEEK


def test_of_several_slots_that_passed_the_last_one_is_made_up_for(
    time: Clock, agent: Agent
) -> None:
    time.move_to(SLOT + 3 * WEEK + DAY)

    for _ in range(3):
        run_tick()

    assert slots_of(agent) == [SLOT + 3 * WEEK]
    assert agent.account.next_due_at == SLOT + 4 * WEEK


def test_a_tick_whose_clock_is_behind_does_nothing_again(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT)
    run_tick()
    declines(agent)
    a_moment_later_saves_one(time, agent)

    for at in (SLOT - timedelta(seconds=2), SLOT, SLOT + MINUTE):
        run_tick(at)

    assert slots_of(agent) == [SLOT]


def test_ticks_at_once_make_one_session_for_each_agent(time: Clock, app: Flask) -> None:
    accounts = [factories.account(next_due_at=SLOT) for _ in range(2)]
    agents = [an_agent(account) for account in accounts for _ in range(8)]
    asked = an_agent(factories.account(schedule=NEW_YEAR), core_token_budget=99)
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
    assert [session.trigger for session in sessions_of(asked)] == ["over_budget"]
    assert sum(each.queued for each in done) == 17
    assert [account.next_due_at for account in accounts] == [SLOT + WEEK] * 2


def test_an_agent_that_is_held_is_left_to_the_next_tick(time: Clock, account: Account) -> None:
    held, free = an_agent(account), an_agent(account)
    time.move_to(SLOT)

    with db.engine.begin() as elsewhere:
        elsewhere.exec_driver_sql(f"SELECT 1 FROM agents WHERE id = {held.id} FOR NO KEY UPDATE")
        first = run_tick()
    second = run_tick()

    assert (first.queued, second.queued, first.faults, second.faults) == (1, 1, 0, 0)
    assert [slots_of(each) for each in (held, free)] == [[SLOT], [SLOT]]
    assert account.next_due_at == SLOT + WEEK


def test_a_slot_that_takes_too_long_is_gone_on_with_at_the_next_tick(
    time: Clock, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    time.move_to(SLOT)

    with monkeypatch.context() as patch:
        patch.setattr(tick, "LONGEST_STEP_SECONDS", 0.0)
        first = run_tick()
    second = run_tick()

    assert (first.queued, second.queued) == (0, 1)
    assert slots_of(agent) == [SLOT]


# -- accounts and agents that come, change and rest -----------------------------------------------


def test_a_new_account_is_asked_at_its_first_slot_and_not_before(time: Clock) -> None:
    time.move_to(SLOT + MINUTE)
    agent = an_agent(factories.account())

    done = run_tick()

    assert done == TickResult()
    assert sessions_of(agent) == []
    assert agent.account.next_due_at == SLOT + WEEK


def test_a_new_account_whose_first_slot_came_before_any_tick_is_asked_all_the_same(
    time: Clock,
) -> None:
    agent = an_agent(factories.account())
    time.move_to(SLOT + HOUR)

    run_tick()

    assert slots_of(agent) == [SLOT]


def test_a_schedule_that_changes_after_its_slot_came_makes_no_slot_of_the_past(
    time: Clock, agent: Agent
) -> None:
    agent.account.schedule = "0 6 * * 1"
    agent.account.next_due_at = SLOT
    db.session.commit()
    time.move_to(SLOT + HOUR)

    run_tick()

    assert slots_of(agent) == [SLOT]


def test_an_account_of_an_unknown_zone_keeps_no_other_from_its_slot(
    time: Clock, account: Account
) -> None:
    lost = an_agent(factories.account(next_due_at=SLOT))
    agent = an_agent(account)
    sql.run(f"UPDATE accounts SET time_zone = 'Mars/Olympus' WHERE id = {lost.account_id}")
    db.session.expire_all()
    time.move_to(SLOT)

    done = run_tick()

    assert done.faults == 2
    assert slots_of(agent) == [SLOT]
    assert ClockMark.age("tick") == timedelta(0)


@pytest.mark.parametrize(
    ("status", "slots"), [("declined", [None]), ("skipped", [None, SLOT])], ids=str
)
def test_a_session_that_is_live_at_the_slot_keeps_it_open_and_serves_it_if_answered(
    time: Clock, agent: Agent, status: str, slots: list[datetime | None]
) -> None:
    live = RefinementSession.queue(agent, "manual")
    db.session.commit()
    time.move_to(SLOT)
    run_tick()
    was_open = agent.account.next_due_at == SLOT
    time.shift(MINUTE)
    live.finish(status, "it ended")
    db.session.commit()

    run_tick()

    assert was_open
    assert slots_of(agent) == slots
    assert agent.account.next_due_at == SLOT + WEEK


def test_who_cannot_be_served_holds_the_slot_open_for_an_hour(time: Clock, refused: Agent) -> None:
    time.move_to(SLOT + HOUR)
    run_tick()
    was_open = refused.account.next_due_at == SLOT
    time.shift(MINUTE)

    run_tick()

    assert was_open
    assert refused.account.next_due_at == SLOT + WEEK


def test_an_agent_that_was_erased_is_owed_nothing(time: Clock, agent: Agent) -> None:
    erasure = "UPDATE data_keys SET wrapped = NULL, destroyed_at = now() WHERE id = "
    sql.run(f"{erasure}{agent.data_key_id}")
    time.move_to(SLOT)

    done = run_tick()

    assert done == TickResult()
    assert agent.account.next_due_at == SLOT + WEEK


@pytest.mark.parametrize(
    ("change", "slot"),
    [
        ({"schedule": "30 4 * * *"}, SLOT + HOUR / 2),
        ({"time_zone": "Atlantic/Azores"}, SLOT + HOUR),
    ],
    ids=["schedule", "time zone"],
)
def test_the_slot_moves_with_a_change_of_the_account(
    time: Clock, agent: Agent, change: dict[str, str], slot: datetime
) -> None:
    for name, value in change.items():
        setattr(agent.account, name, value)
    db.session.commit()

    for _ in tick_until(time, SLOT + 2 * HOUR, HOUR / 2):
        pass

    assert slots_of(agent) == [slot]


def test_the_slot_moves_with_the_platforms_schedule(
    time: Clock, agent: Agent, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = app.extensions["refine.settings"]

    monkeypatch.setitem(app.extensions, "refine.settings", replace(settings, schedule="30 4 * * *"))
    for _ in tick_until(time, SLOT + 2 * HOUR, HOUR / 2):
        pass

    assert slots_of(agent) == [SLOT + HOUR / 2]


def test_the_slot_of_a_paused_account_passes_and_is_not_made_up_for(
    time: Clock, agent: Agent
) -> None:
    agent.account.paused = True
    db.session.commit()
    time.move_to(SLOT)
    run_tick()

    agent.account.paused = False
    db.session.commit()
    for _ in tick_until(time, SLOT + WEEK, DAY):
        pass

    assert slots_of(agent) == [SLOT + WEEK]


@pytest.mark.parametrize("state", [{"paused": True}, {"active": False}])
def test_the_slot_of_an_agent_that_is_switched_off_passes(
    time: Clock, account: Account, state: dict[str, bool]
) -> None:
    agent = an_agent(account, **state)
    time.move_to(SLOT)

    done = run_tick()

    assert done == TickResult()
    assert sessions_of(agent) == []
    assert account.next_due_at == SLOT + WEEK


def test_the_slot_of_agents_with_nothing_to_change_passes(time: Clock, account: Account) -> None:
    factories.agent(account=account)
    factories.memory(factories.agent(account=account), constitutional=True)
    factories.memory(factories.agent(account=account), memory_type="journal")
    db.session.commit()
    time.move_to(SLOT)

    done = run_tick()

    assert done == TickResult()
    assert account.next_due_at == SLOT + WEEK


@pytest.mark.parametrize("trigger", ["manual", "over_budget"])
def test_a_live_session_serves_the_slot(time: Clock, agent: Agent, trigger: Trigger) -> None:
    live = RefinementSession.queue(agent, trigger)
    db.session.commit()
    time.move_to(SLOT)
    run_tick()
    declines(agent)
    a_moment_later_saves_one(time, agent)

    for _ in tick_until(time, SLOT + DAY, 6 * HOUR):
        pass

    assert sessions_of(agent) == [live]


def test_an_agent_that_was_refined_after_the_slot_is_not_asked_for_it(
    time: Clock, agent: Agent
) -> None:
    time.move_to(SLOT + HOUR)
    by_hand = RefinementSession.queue(agent, "manual")
    removes_one(agent)

    time.shift(HOUR)
    run_tick()

    assert sessions_of(agent) == [by_hand]


def test_an_agent_that_was_refined_before_the_slot_is_asked(time: Clock, agent: Agent) -> None:
    RefinementSession.queue(agent, "manual")
    removes_one(agent)
    time.move_to(SLOT)

    run_tick()

    assert slots_of(agent) == [None, SLOT]


# -- failures -------------------------------------------------------------------------------------


def test_one_agents_failure_touches_no_other_and_leaves_the_slot_open(
    time: Clock, refused: Agent
) -> None:
    others = [an_agent(refused.account), an_agent(factories.account(next_due_at=SLOT))]
    time.move_to(SLOT)

    done = run_tick()

    assert (done.queued, done.faults) == (2, 1)
    assert [slots_of(other) for other in others] == [[SLOT], [SLOT]]
    assert refused.account.next_due_at == SLOT


def test_a_slot_that_was_left_open_is_run_as_soon_as_it_can_be(time: Clock, refused: Agent) -> None:
    time.move_to(SLOT)
    run_tick()
    sql.run("DROP FUNCTION refuse_one() CASCADE")
    time.shift(MINUTE)

    done = run_tick()

    assert (done.queued, done.faults) == (1, 0)
    assert slots_of(refused) == [SLOT]
    assert refused.account.next_due_at == SLOT + WEEK


def test_one_account_that_fails_keeps_no_other_from_its_slot(time: Clock) -> None:
    broken, sound = (factories.account(next_due_at=SLOT) for _ in range(2))
    agents = [an_agent(broken), an_agent(sound)]
    sql.run(
        f"""CREATE FUNCTION refuse_account() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.id = {broken.id} THEN RAISE EXCEPTION 'a bad sector'; END IF;
            RETURN NEW; END $$""",
        """CREATE TRIGGER refuse_account BEFORE UPDATE ON accounts
           FOR EACH ROW EXECUTE FUNCTION refuse_account()""",
    )
    time.move_to(SLOT)

    try:
        done = run_tick()
    finally:
        db.session.rollback()
        sql.run("DROP FUNCTION refuse_account() CASCADE")

    assert done.faults == 1
    assert [slots_of(agent) for agent in agents] == [[SLOT], [SLOT]]
    assert sound.next_due_at == SLOT + WEEK


def test_a_tick_that_rq_gives_up_ends_there(
    time: Clock, agent: Agent, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = app.extensions["refine.settings"]
    time.move_to(SLOT)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        monkeypatch.setitem(app.extensions, "refine.settings", replace(settings, redis_url=url))
        with pytest.raises(JobTimeoutException), UnixSignalDeathPenalty(1, JobTimeoutException):
            run_tick()

    assert sessions_of(agent) == []
    assert ClockMark.age("tick") == 2 * HOUR


def test_a_step_that_fails_keeps_no_other_from_its_turn(
    time: Clock, account: Account, over_budget: Agent, refused_accounts: None
) -> None:
    lost = factories.session(an_agent(account))
    time.shift(2 * MINUTE)

    done = run_tick()

    db.session.refresh(lost)
    assert (done.lost, done.queued, done.dispatched) == (1, 1, 1)
    assert done.faults > 0
    assert lost.status == "failed"
    assert session_of(over_budget).dispatched_at is not None
    assert ClockMark.age("tick") == timedelta(0)


def test_without_redis_all_is_queued_and_handed_over_later(
    time: Clock, agent: Agent, redis_away: pytest.MonkeyPatch
) -> None:
    time.move_to(SLOT)
    first = run_tick()
    was_dispatched_at = session_of(agent).dispatched_at

    redis_away.undo()
    time.shift(MINUTE)
    second = run_tick()

    assert first == TickResult(queued=1, faults=2)
    assert was_dispatched_at is None
    assert second == TickResult(dispatched=1)
    assert session_of(agent).dispatched_at == SLOT + MINUTE


# -- what is skipped at a slot --------------------------------------------------------------------


def reach_the_cap(agent: Agent) -> None:
    agent.account.monthly_cost_cap_usd = Decimal(0)


def erode(agent: Agent) -> None:
    earlier = RefinementSession.start(agent)
    earlier.finish("completed", "the agent completed it")
    earlier.removable_tokens = earlier.removed_tokens = 100


def remove_nothing(agent: Agent) -> None:
    editing.complete(RefinementSession.start(agent), "All is well.")


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (reach_the_cap, "the account's monthly cost cap of $0.00 is reached"),
        (erode, "sessions of the last 30 days removed as much as they may"),
        (remove_nothing, "nothing changed since the last session, which removed nothing"),
    ],
)
def test_a_session_that_may_not_run_is_skipped_and_says_why(
    time: Clock, agent: Agent, redis: Redis, cause: Any, reason: str
) -> None:
    cause(agent)
    db.session.commit()
    time.move_to(SLOT)

    done = run_tick()

    session = sessions_of(agent)[-1]
    record = factories.records(agent)[-1]
    assert done == TickResult(skipped=1)
    assert (session.status, session.end_reason, session.slot_at) == ("skipped", reason, SLOT)
    assert (session.llm_calls, session.ended_at) == (0, SLOT)
    assert (record.action, record.data["reason"]) == ("memory_refinement_skipped", reason)
    assert redis.keys() == []


def test_a_slot_that_was_skipped_is_over(time: Clock, agent: Agent) -> None:
    reach_the_cap(agent)
    db.session.commit()
    time.move_to(SLOT)
    run_tick()

    agent.account.monthly_cost_cap_usd = None
    db.session.commit()
    for _ in tick_until(time, SLOT + DAY, 6 * HOUR):
        pass

    assert [session.status for session in sessions_of(agent)] == ["skipped"]
    assert agent.account.next_due_at == SLOT + WEEK


# -- over the budget ------------------------------------------------------------------------------


def test_the_budgets_are_looked_at_every_hour_and_not_oftener(time: Clock) -> None:
    run_tick()
    checked_at = datetime.now(UTC)
    agent = an_agent(factories.account(schedule=NEW_YEAR), core_token_budget=99)

    for _ in tick_until(time, checked_at + HOUR - MINUTE, 10 * MINUTE):
        pass
    within_the_hour = [*sessions_of(agent), run_tick(checked_at + HOUR - MINUTE).queued]
    run_tick(checked_at + HOUR)

    session = session_of(agent)
    assert within_the_hour == [0]
    assert (session.trigger, session.created_at) == ("over_budget", checked_at + HOUR)
    assert (session.slot_at, session.attempt) == (None, 1)


def test_an_agent_over_its_budget_is_asked_when_it_has_cooled_down(
    time: Clock, over_budget: Agent
) -> None:
    began_at = datetime.now(UTC)
    ends = iter([declines, declines, removes_one, removes_one])

    for done in tick_until(time, began_at + timedelta(hours=48 + 96 + 24), 8 * HOUR):
        if done.queued:
            next(ends)(over_budget)
            a_moment_later_saves_one(time, over_budget)

    hours = [(session.created_at - began_at) / HOUR for session in sessions_of(over_budget)]
    assert hours == [0, 48, 48 + 96, 48 + 96 + 24]


def test_an_agent_within_its_budget_is_not_asked(time: Clock, over_budget: Agent) -> None:
    over_budget.core_token_budget = 100
    db.session.commit()

    assert run_tick() == TickResult()


@pytest.mark.parametrize("cause", [reach_the_cap, erode, remove_nothing])
def test_an_agent_over_its_budget_is_not_asked_while_it_may_not_be(
    time: Clock, over_budget: Agent, cause: Any
) -> None:
    cause(over_budget)
    db.session.commit()
    before = sessions_of(over_budget)

    for _ in tick_until(time, datetime.now(UTC) + 20 * DAY, 5 * DAY):
        pass

    assert sessions_of(over_budget) == before


def test_an_agent_over_its_budget_is_not_asked_while_its_account_rests(
    time: Clock, over_budget: Agent
) -> None:
    over_budget.account.paused = True
    db.session.commit()

    resting = [done.queued for done in tick_until(time, datetime.now(UTC) + DAY, 6 * HOUR)]
    over_budget.account.paused = False
    db.session.commit()
    done = run_tick()

    assert sum(resting) == 0
    assert done.queued == 1


def test_a_check_of_budgets_that_takes_too_long_is_gone_on_with_at_the_next_tick(
    time: Clock, over_budget: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(tick, "LONGEST_STEP_SECONDS", 0.0)
        first = run_tick()
    time.shift(MINUTE)

    second = run_tick()

    assert (first.queued, second.queued) == (0, 1)


def test_a_check_of_budgets_goes_on_behind_the_agents_that_it_came_to(
    time: Clock, over_budget: Agent
) -> None:
    behind = an_agent(over_budget.account, core_token_budget=99)
    ClockMark.begin("budget_check", every=HOUR, at=datetime.now(UTC))
    ClockMark.reached("budget_check", over_budget.id)
    db.session.commit()

    queued = [done.queued for done in tick_until(time, datetime.now(UTC) + MINUTE, MINUTE)]

    assert queued == [1, 0]
    assert sessions_of(over_budget) == []
    assert session_of(behind).trigger == "over_budget"


def test_an_agent_that_could_remove_nothing_is_left_to_its_slot(
    time: Clock, over_budget: Agent
) -> None:
    over_budget.refinement_threshold = 1
    db.session.commit()

    for _ in tick_until(time, datetime.now(UTC) + DAY, 6 * HOUR):
        pass

    assert sessions_of(over_budget) == []


def test_a_check_of_budgets_goes_on_behind_an_agent_whose_rows_fail(
    time: Clock, refused: Agent, over_budget: Agent
) -> None:
    refused.core_token_budget = 1
    db.session.commit()

    done = run_tick()

    assert (done.queued, done.faults) == (1, 1)
    assert session_of(over_budget).trigger == "over_budget"


# -- what failed is tried again -------------------------------------------------------------------


def test_what_failed_is_tried_again_three_times_with_growing_pauses(
    time: Clock, agent: Agent
) -> None:
    for minutes in (0, 4, 5, 34, 35, 154, 155, 300):
        time.move_to(SLOT + minutes * MINUTE)
        done = run_tick()
        if done.queued or done.retried:
            fails(agent)

    sessions = sessions_of(agent)
    created = [(session.created_at - SLOT) / MINUTE for session in sessions]
    assert created == [0, 5, 5 + 30, 5 + 30 + 120]
    assert [session.attempt for session in sessions] == [1, 2, 3, 4]
    assert slots_of(agent) == [SLOT] * 4
    assert {session.trigger for session in sessions} == {"weekly"}


def test_after_the_last_retry_nothing_comes_before_the_next_slot(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT)

    for done in tick_until(time, SLOT + WEEK, DAY):
        if done.queued or done.retried:
            fails(agent)

    sessions = sessions_of(agent)
    assert [session.attempt for session in sessions] == [1, 2, 3, 4, 1]
    assert slots_of(agent) == [*[SLOT] * 4, SLOT + WEEK]


def test_a_retry_that_succeeds_is_the_last_one(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT)
    run_tick()
    fails(agent)
    time.shift(5 * MINUTE)
    run_tick()
    removes_one(agent)

    for _ in tick_until(time, SLOT + DAY, 6 * HOUR):
        pass

    assert [session.status for session in sessions_of(agent)] == ["failed", "completed"]


def test_when_the_next_slot_has_come_the_failure_before_it_is_not_tried_again(
    time: Clock, account: Account
) -> None:
    agent = an_agent(account, core_token_budget=99)
    time.move_to(SLOT - MINUTE)
    RefinementSession.queue(agent, "over_budget")
    fails(agent)
    time.move_to(SLOT)
    account.paused = True
    db.session.commit()
    run_tick()
    account.paused = False
    db.session.commit()

    retried = [done.retried for done in tick_until(time, SLOT + HOUR, 10 * MINUTE)]

    assert sum(retried) == 0


def test_an_agent_over_its_budget_whose_session_failed_is_tried_again_and_not_asked_anew(
    time: Clock, over_budget: Agent
) -> None:
    for done in tick_until(time, datetime.now(UTC) + 10 * HOUR, HOUR):
        if done.queued or done.retried:
            fails(over_budget)

    sessions = sessions_of(over_budget)
    assert [session.attempt for session in sessions] == [1, 2, 3, 4]
    assert {session.trigger for session in sessions} == {"over_budget"}


def test_who_is_within_the_budget_again_is_not_tried_again(time: Clock, over_budget: Agent) -> None:
    run_tick()
    fails(over_budget)
    db.session.scalars(over_budget.ledger.core()).all()[0].discard()
    db.session.commit()

    for _ in tick_until(time, datetime.now(UTC) + HOUR, 10 * MINUTE):
        pass

    assert [session.status for session in sessions_of(over_budget)] == ["failed"]


@pytest.mark.parametrize("state", ["paused", "capped"])
def test_who_may_not_be_asked_any_more_is_not_tried_again(
    time: Clock, agent: Agent, state: str
) -> None:
    time.move_to(SLOT)
    run_tick()
    fails(agent)
    agent.paused = state == "paused"
    agent.account.monthly_cost_cap_usd = Decimal(0) if state == "capped" else None
    db.session.commit()

    for _ in tick_until(time, SLOT + HOUR, 10 * MINUTE):
        pass

    assert [session.status for session in sessions_of(agent)] == ["failed"]


def test_a_session_asked_for_by_hand_is_not_tried_again(time: Clock, agent: Agent) -> None:
    RefinementSession.queue(agent, "cli")
    fails(agent)

    for _ in tick_until(time, SLOT - MINUTE, 10 * MINUTE):
        pass

    assert [session.attempt for session in sessions_of(agent)] == [1]


def test_a_failure_that_another_session_followed_is_not_tried_again(
    time: Clock, agent: Agent
) -> None:
    time.move_to(SLOT)
    run_tick()
    fails(agent)
    time.shift(MINUTE)
    RefinementSession.queue(agent, "cli")
    declines(agent)

    for _ in tick_until(time, SLOT + HOUR, 10 * MINUTE):
        pass

    assert [session.status for session in sessions_of(agent)] == ["failed", "declined"]


def test_retries_go_on_behind_an_agent_whose_rows_fail(time: Clock, refused: Agent) -> None:
    other = an_agent(refused.account)
    time.move_to(SLOT)
    sql.run("ALTER TABLE refinement_sessions DISABLE TRIGGER refuse_one")
    run_tick()
    for each in (refused, other):
        fails(each)
    sql.run("ALTER TABLE refinement_sessions ENABLE TRIGGER refuse_one")
    time.shift(5 * MINUTE)

    done = run_tick()

    assert (done.retried, done.faults) == (1, 1)
    assert [session.attempt for session in sessions_of(other)] == [1, 2]


# -- sessions whose worker was lost ---------------------------------------------------------------


@pytest.mark.parametrize(("edits", "status"), [(0, "failed"), (1, "incomplete")])
def test_a_session_whose_worker_was_lost_is_ended(
    time: Clock, agent: Agent, edits: int, status: str
) -> None:
    session = factories.session(agent)
    for memory in db.session.scalars(agent.ledger.core().limit(edits)).all():
        editing.delete(session, memory.id)
    db.session.commit()
    time.shift(timedelta(seconds=46))

    done = run_tick()

    db.session.refresh(session)
    assert done == TickResult(lost=1)
    assert (session.status, session.error_kind) == (status, "worker_lost")
    assert (session.end_reason, session.lease_token) == ("the worker was lost", None)
    assert factories.records(agent)[-1].action == f"memory_refinement_{status}"


def test_a_session_whose_worker_beat_35_seconds_ago_is_left(time: Clock, agent: Agent) -> None:
    session = factories.session(agent)
    time.shift(timedelta(seconds=35))

    done = run_tick()

    db.session.refresh(session)
    assert (done, session.status) == (TickResult(), "running")


def test_the_agent_of_a_lost_session_is_free(time: Clock, agent: Agent) -> None:
    factories.session(agent)
    time.shift(MINUTE)
    run_tick()

    next_one = RefinementSession.queue(agent, "manual")

    assert RefinementSession.live_of(agent) is next_one


def test_a_worker_that_was_given_up_can_change_nothing_more(time: Clock, agent: Agent) -> None:
    session = factories.session(agent)
    late_tool, lease_token = RefinementTool(session), session.lease_token
    memory = db.session.scalars(agent.ledger.core()).all()[0]
    time.shift(MINUTE)
    run_tick()
    committed = sql.snapshot()

    result = late_tool.execute("delete", id=memory.id)

    assert result["error"].startswith("Session terminated (failed)")
    with pytest.raises(LeaseLost, match="failed"):
        RefinementSession.held(session.id, lease_token)
    assert sql.snapshot() == committed


def test_a_lost_session_of_a_slot_is_tried_again(time: Clock, agent: Agent) -> None:
    time.move_to(SLOT)
    run_tick()
    claimed(agent)

    lost = [done.lost for done in tick_until(time, SLOT + 10 * MINUTE, MINUTE)]

    assert lost == [0, 1, *[0] * 9]
    assert [session.status for session in sessions_of(agent)] == ["failed", "queued"]
    assert slots_of(agent) == [SLOT, SLOT]


def test_a_lost_session_is_over_within_two_minutes() -> None:
    silence_seconds, until_the_next_tick_seconds = (
        each.total_seconds() for each in (LOST_AFTER, INTERVAL)
    )
    held_up_seconds = 3 * tick.LONGEST_STEP_SECONDS

    assert silence_seconds + until_the_next_tick_seconds + held_up_seconds < 120


def test_lost_sessions_are_ended_behind_one_whose_rows_fail(time: Clock, refused: Agent) -> None:
    other = an_agent(refused.account)
    sql.run("ALTER TABLE refinement_sessions DISABLE TRIGGER refuse_one")
    stuck, ended = factories.session(refused), factories.session(other)
    sql.run("ALTER TABLE refinement_sessions ENABLE TRIGGER refuse_one")
    time.shift(MINUTE)

    done = run_tick()

    db.session.rollback()
    assert (done.lost, done.faults) == (1, 1)
    assert (stuck.status, ended.status) == ("running", "failed")


@pytest.mark.parametrize(("edits", "status"), [(0, "failed"), (1, "incomplete")])
def test_a_lost_session_of_an_agent_that_was_erased_meanwhile_is_ended(
    time: Clock, agent: Agent, edits: int, status: str
) -> None:
    session = factories.session(agent)
    for memory in db.session.scalars(agent.ledger.core().limit(edits)).all():
        editing.delete(session, memory.id)
    factories.erase(agent)
    db.session.commit()
    time.shift(MINUTE)

    done, again = run_tick(), run_tick()

    db.session.refresh(session)
    last = factories.records(agent)[-1]
    assert (done, again) == (TickResult(lost=1), TickResult())
    assert (session.status, session.lease_token) == (status, None)
    assert (last.action, last.sealed) == (f"memory_refinement_{status}", {})
    assert last.data["mutation_count"] == edits
    assert verify_agent(agent).problem is None


# -- the clock's own mark -------------------------------------------------------------------------


def test_every_tick_leaves_its_mark(time: Clock, app: Flask) -> None:
    ages = []
    for _ in range(3):
        run_tick()
        ages.append(ClockMark.age("tick"))
        time.shift(MINUTE)

    assert ages == [timedelta(0)] * 3
    assert ClockMark.age("tick") == MINUTE


def test_where_nothing_is_due_a_tick_does_nothing(time: Clock, agent: Agent, redis: Redis) -> None:
    committed = sql.snapshot()
    time.shift(MINUTE)

    done = run_tick()

    after = sql.snapshot()
    assert done == TickResult()
    assert redis.keys() == []
    assert {table for table in after if after[table] != committed[table]} == {"clock_marks"}
