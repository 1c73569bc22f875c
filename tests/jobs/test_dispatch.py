"""Handing over: what somebody asked for at once, of the rest a few at a time, and nothing twice."""

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from flask import Flask
from redis import Redis

from refine import create_app
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.dispatch import dispatch
from refine.jobs.queue import ASKED, QUEUES, SWEPT, TICKS, queue
from refine.jobs.runs import RunFault, refine_session
from refine.jobs.worker import RefineWorker
from refine.models import RefinementSession
from refine.models.runs.session import Trigger
from refine.settings import Settings
from tests import factories, sql
from tests.commands import UNUSED_PORT
from tests.in_redis import everything_in

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
ON_ITS_WAY = timedelta(seconds=30)
A_MINUTE = timedelta(minutes=1)
BY_HAND: list[Trigger] = ["manual", "api", "cli"]

RegisterWorkers = Callable[..., list[RefineWorker]]


@pytest.fixture(autouse=True)
def now(app: Flask, redis: Redis) -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


@pytest.fixture
def workers(redis: Redis) -> RegisterWorkers:
    """Registers workers of these queues, as they register themselves when they start."""

    def register(count: int, names: tuple[str, ...] = QUEUES) -> list[RefineWorker]:
        made = [
            RefineWorker([queue(name, redis) for name in names], connection=redis)
            for _ in range(count)
        ]
        for worker in made:
            worker.register_birth()
        return made

    return register


@pytest.fixture
def refused_updates(app: Flask) -> Iterator[None]:
    """The database takes no change of the oldest session."""
    sql.run(
        """CREATE FUNCTION refuse_oldest() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.created_at = (SELECT min(created_at) FROM refinement_sessions)
           AND NEW.dispatched_at = OLD.dispatched_at THEN RAISE EXCEPTION 'a bad sector'; END IF;
           RETURN NEW; END $$""",
        """CREATE TRIGGER refuse_oldest BEFORE UPDATE ON refinement_sessions
           FOR EACH ROW EXECUTE FUNCTION refuse_oldest()""",
    )
    yield
    db.session.rollback()
    sql.run("DROP FUNCTION refuse_oldest() CASCADE")


def queued(trigger: Trigger, **fields: Any) -> RefinementSession:
    """A session of an agent of its own that no worker was given yet."""
    agent = factories.agent(factories.text_of(25), model_id="rehearsal/x")
    session = RefinementSession.queue(agent, trigger, **fields)
    db.session.commit()
    return session


def running(trigger: Trigger) -> RefinementSession:
    session = queued(trigger)
    session.claim()
    db.session.commit()
    return session


def waiting_in(redis: Redis, name: str) -> list[str]:
    """The ids in a queue, those first that are worked first."""
    return [id_.decode() for id_ in redis.lrange(f"rq:queue:{name}", 0, -1)]


def ids_of(*sessions: RefinementSession) -> list[str]:
    return [str(session.id) for session in sessions]


# -- at once, or a few at a time ------------------------------------------------------------------


def test_what_somebody_asked_for_is_all_handed_over_at_once(redis: Redis) -> None:
    sessions = [queued(trigger) for trigger in BY_HAND * 2]

    count = dispatch()

    assert count == 6
    assert sorted(waiting_in(redis, ASKED)) == sorted(ids_of(*sessions))
    assert waiting_in(redis, SWEPT) == []
    assert {session.dispatched_at for session in sessions} == {NOW}


@pytest.mark.parametrize(("count", "handed_over"), [(0, 1), (1, 1), (2, 1), (3, 2), (6, 5)])
def test_of_what_nobody_asked_for_as_much_is_handed_over_as_leaves_a_worker_free(
    redis: Redis, workers: RegisterWorkers, count: int, handed_over: int
) -> None:
    workers(count)
    sessions = [queued("weekly") for _ in range(7)]

    assert dispatch() == handed_over

    assert len(waiting_in(redis, SWEPT)) == handed_over
    assert [session.dispatched_at for session in sessions].count(None) == 7 - handed_over


def test_a_worker_that_went_leaves_no_room(redis: Redis, workers: RegisterWorkers) -> None:
    gone, *_ = workers(3)
    gone.register_death()
    for _ in range(3):
        queued("weekly")

    assert dispatch() == 1


@pytest.mark.parametrize(("silence", "count"), [(A_MINUTE - MOMENT, 2), (A_MINUTE, 1)])
def test_workers_that_were_killed_leave_room_for_a_minute(
    workers: RegisterWorkers, now: time_machine.Traveller, silence: timedelta, count: int
) -> None:
    workers(2)
    now.shift(silence)
    workers(1)
    for _ in range(3):
        queued("weekly")

    assert dispatch() == count


def test_a_worker_whose_figures_expired_is_none(redis: Redis, workers: RegisterWorkers) -> None:
    gone, *_ = workers(3)
    redis.delete(gone.key)
    for _ in range(3):
        queued("weekly")

    assert dispatch() == 1


def test_workers_that_redis_forgot_count_again_from_their_next_beat(
    redis: Redis, workers: RegisterWorkers
) -> None:
    forgotten = workers(4)
    redis.flushall()
    for worker in forgotten:
        worker.heartbeat()
    for _ in range(4):
        queued("weekly")

    assert dispatch() == 3


def test_the_worker_of_the_ticks_is_none_for_sessions(workers: RegisterWorkers) -> None:
    workers(5, names=(TICKS,))
    for _ in range(3):
        queued("weekly")

    assert dispatch() == 1


@pytest.mark.parametrize("trigger", ["weekly", "over_budget"])
def test_what_runs_already_takes_up_room(workers: RegisterWorkers, trigger: Trigger) -> None:
    workers(3)
    running(trigger)
    for _ in range(3):
        queued("over_budget")

    assert dispatch() == 1


@pytest.mark.parametrize("trigger", BY_HAND)
def test_what_somebody_asked_for_takes_up_no_room(
    redis: Redis, workers: RegisterWorkers, trigger: Trigger
) -> None:
    workers(3)
    running(trigger)
    queued(trigger)
    for _ in range(3):
        queued("weekly")

    dispatch()

    assert len(waiting_in(redis, SWEPT)) == 2


def test_what_was_handed_over_and_waits_takes_up_room(workers: RegisterWorkers) -> None:
    workers(3)
    for _ in range(5):
        queued("weekly")

    counts = [dispatch() for _ in range(3)]

    assert counts == [2, 0, 0]


def test_where_more_run_than_there_is_room_for_nothing_more_is_handed_over(
    redis: Redis,
) -> None:
    for _ in range(3):
        running("weekly")
    queued("weekly")
    asked = queued("cli")

    count = dispatch()

    assert count == 1
    assert waiting_in(redis, ASKED) == ids_of(asked)


def test_a_session_that_ends_makes_room_for_the_next_one(redis: Redis) -> None:
    first, second, third = (queued("weekly", at=NOW + n * MOMENT) for n in range(3))
    dispatch()

    refine_session(str(first.id))

    for session in (first, second, third):
        db.session.refresh(session)
    assert [session.is_live for session in (first, second, third)] == [False, True, True]
    assert [session.dispatched_at for session in (second, third)] == [NOW, None]
    assert waiting_in(redis, SWEPT) == ids_of(first, second)


def test_a_session_that_breaks_makes_room_all_the_same(redis: Redis) -> None:
    session = queued("weekly")

    with pytest.raises(RunFault):
        refine_session(str(uuid.uuid4()))

    assert waiting_in(redis, SWEPT) == ids_of(session)


def test_a_session_that_the_database_refuses_makes_room_all_the_same(
    redis: Redis, workers: RegisterWorkers, refused_updates: None
) -> None:
    workers(3)
    broken = queued("weekly", dispatched_at=NOW)
    session = queued("weekly")

    with pytest.raises(RunFault):
        refine_session(str(broken.id))

    assert waiting_in(redis, SWEPT) == ids_of(session)


@pytest.mark.parametrize("trigger", ["weekly", "cli"])
def test_the_oldest_is_handed_over_first(
    redis: Redis, workers: RegisterWorkers, trigger: Trigger
) -> None:
    workers(4)
    ages = (2, 3, 1)
    second, first, third = (queued(trigger, at=NOW - timedelta(hours=age)) for age in ages)

    dispatch()

    name = SWEPT if trigger == "weekly" else ASKED
    assert waiting_in(redis, name) == ids_of(first, second, third)


@pytest.mark.parametrize("trigger", ["weekly", "cli"])
def test_what_is_not_queued_is_not_handed_over(redis: Redis, trigger: Trigger) -> None:
    running(trigger)
    queued(trigger).request_stop()
    db.session.commit()

    assert dispatch() == 0

    assert redis.keys() == []


def test_only_ids_are_in_redis(redis: Redis) -> None:
    agent = factories.agent("the canary sings at dawn", name="Canary", system_prompt="canary")
    session = RefinementSession.queue(agent, "weekly")
    db.session.commit()

    dispatch()

    stored = everything_in(redis)
    assert str(session.id).encode() in stored
    assert b"canary" not in stored.lower()


# -- Redis forgets, or is away --------------------------------------------------------------------


@pytest.mark.parametrize("trigger", ["weekly", "cli"])
@pytest.mark.parametrize(
    ("later", "count"), [(timedelta(0), 0), (ON_ITS_WAY - MOMENT, 0), (ON_ITS_WAY, 1)]
)
def test_what_redis_lost_is_handed_over_again_after_30_seconds(
    redis: Redis,
    now: time_machine.Traveller,
    trigger: Trigger,
    later: timedelta,
    count: int,
) -> None:
    session = queued(trigger)
    dispatch()
    redis.flushall()
    now.shift(later)

    assert dispatch() == count

    name = SWEPT if trigger == "weekly" else ASKED
    assert waiting_in(redis, name) == ids_of(session)[:count]
    assert session.dispatched_at == NOW + later * count


@pytest.mark.parametrize("trigger", ["weekly", "cli"])
def test_what_is_in_redis_yet_is_never_handed_over_again(
    redis: Redis, now: time_machine.Traveller, trigger: Trigger
) -> None:
    session = queued(trigger)
    dispatch()
    now.shift(timedelta(days=1))

    assert dispatch() == 0

    assert session.dispatched_at == NOW


def test_a_session_that_began_is_not_handed_over_again(
    redis: Redis, now: time_machine.Traveller
) -> None:
    session = queued("cli")
    dispatch()
    session.claim()
    db.session.commit()
    redis.flushall()
    now.shift(timedelta(hours=1))

    assert dispatch() == 0

    assert session.dispatched_at == NOW


def test_after_a_flush_there_is_no_more_room_than_before(
    redis: Redis, workers: RegisterWorkers, now: time_machine.Traveller
) -> None:
    for _ in range(4):
        queued("weekly")
    workers(3)
    dispatch()
    redis.flushall()
    workers(3)
    now.shift(ON_ITS_WAY)

    assert dispatch() == 2


def test_without_redis_everything_stays_queued(environ: dict[str, str]) -> None:
    sessions = [queued(trigger) for trigger in ("cli", "weekly")]
    away = {**environ, "REDIS_URL": f"redis://127.0.0.1:{UNUSED_PORT}/0"}

    with create_app(Settings.from_environ(away)).app_context():
        with pytest.raises(Unreachable, match="Redis does not answer at REDIS_URL"):
            dispatch()
        db.session.remove()
        db.engine.dispose()

    for session in sessions:
        db.session.refresh(session)
    assert [(session.status, session.dispatched_at) for session in sessions] == [
        ("queued", None)
    ] * 2


def test_where_redis_refuses_what_it_is_given_everything_stays_queued(redis: Redis) -> None:
    session = queued("cli")
    redis.set(f"rq:job:{session.id}", "no hash, as a job would be")

    with pytest.raises(Unreachable):
        dispatch()

    db.session.rollback()
    assert (session.status, session.dispatched_at) == ("queued", None)


# -- several dispatchers --------------------------------------------------------------------------


def test_dispatchers_at_once_hand_over_no_more_than_there_is_room_for(
    app: Flask, redis: Redis, workers: RegisterWorkers
) -> None:
    workers(3)
    swept = [queued("weekly") for _ in range(6)]
    asked = [queued("cli") for _ in range(6)]
    together, counts = threading.Barrier(4), []

    def race() -> None:
        with app.app_context():
            together.wait(10)
            counts.append(dispatch())

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(counts) == 2 + 6
    assert sorted(waiting_in(redis, ASKED)) == sorted(ids_of(*asked))
    assert set(waiting_in(redis, SWEPT)) < set(ids_of(*swept))
    assert len(waiting_in(redis, SWEPT)) == 2


def test_a_session_that_somebody_holds_keeps_no_other_waiting(redis: Redis) -> None:
    held, free = queued("cli"), queued("cli")

    with db.engine.begin() as elsewhere:
        elsewhere.exec_driver_sql(
            f"SELECT 1 FROM refinement_sessions WHERE id = '{held.id}' FOR NO KEY UPDATE"
        )
        during = dispatch()
    after = dispatch()

    assert (during, after) == (1, 1)
    assert waiting_in(redis, ASKED) == ids_of(free, held)


def test_what_is_not_committed_is_not_handed_over(app: Flask, redis: Redis) -> None:
    queued("cli")
    RefinementSession.queue(factories.agent("a memory"), "cli")
    counts = []

    def elsewhere() -> None:
        with app.app_context():
            counts.append(dispatch())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()

    assert counts == [1]


def test_a_dispatch_is_committed(redis: Redis) -> None:
    queued("cli")

    dispatch()

    assert sql.value("SELECT dispatched_at FROM refinement_sessions") == NOW
