"""Dispatching: requested sessions at once, automatic ones a few at a time, nothing twice."""

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from flask import Flask
from redis import Redis
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from refine import create_app
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.dispatch import dispatch, dispatch_if_possible
from refine.jobs.queue import AUTOMATIC, QUEUES, REQUESTED, TICKS, queue
from refine.jobs.runs import RunFault, refine_session
from refine.jobs.worker import RefineWorker
from refine.jobs.workers import SILENT_AFTER, live_workers
from refine.models import RefinementSession
from refine.models.runs.session import Trigger
from refine.settings import Settings
from tests import factories, sql
from tests.commands import UNUSED_PORT
from tests.in_redis import everything_in, let_pass

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)
ON_ITS_WAY = timedelta(seconds=30)
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
    """The database refuses changes of the oldest session."""
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


@pytest.fixture
def refused_resets(app: Flask) -> Iterator[None]:
    """The database refuses to mark a run as not dispatched."""
    sql.run(
        """CREATE FUNCTION refuse_resets() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NEW.dispatched_at IS NULL THEN RAISE EXCEPTION 'a bad sector'; END IF;
           RETURN NEW; END $$""",
        """CREATE TRIGGER refuse_resets BEFORE UPDATE ON refinement_sessions
           FOR EACH ROW EXECUTE FUNCTION refuse_resets()""",
    )
    yield
    db.session.rollback()
    sql.run("DROP FUNCTION refuse_resets() CASCADE")


@pytest.fixture
def no_automatic(app: Flask) -> Iterator[None]:
    """The database cannot say which memory tasks wait."""
    sql.run("ALTER TABLE memory_tasks RENAME COLUMN created_at TO made_at")
    yield
    db.session.rollback()
    sql.run("ALTER TABLE memory_tasks RENAME COLUMN made_at TO created_at")


def queued(trigger: Trigger, **fields: Any) -> RefinementSession:
    """A session of a new agent, not yet dispatched."""
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
    """The ids in a queue, the next one first."""
    return [id_.decode() for id_ in redis.lrange(f"rq:queue:{name}", 0, -1)]


def ids_of(*sessions: RefinementSession) -> list[str]:
    return [str(session.id) for session in sessions]


# -- room for automatic sessions ------------------------------------------------------------------


def test_requested_sessions_are_all_dispatched_at_once(redis: Redis) -> None:
    sessions = [queued(trigger) for trigger in BY_HAND * 2]

    count = dispatch()

    assert count == 6
    assert sql.value("SELECT DISTINCT dispatched_at FROM refinement_sessions") == NOW
    assert sorted(waiting_in(redis, REQUESTED)) == sorted(ids_of(*sessions))
    assert waiting_in(redis, AUTOMATIC) == []
    assert {session.dispatched_at for session in sessions} == {NOW}


def test_automatic_sessions_leave_one_worker_free(redis: Redis, workers: RegisterWorkers) -> None:
    sessions = [queued("weekly") for _ in range(7)]
    dispatched = []
    for more in (0, 1, 1, 1, 3):
        workers(more)
        dispatch()
        dispatched.append(len(waiting_in(redis, AUTOMATIC)))

    # with 0, 1, 2, 3 and 6 workers
    assert dispatched == [1, 1, 1, 2, 5]
    assert [session.dispatched_at for session in sessions].count(None) == 2
    assert dispatch() == 0


def test_automatic_sessions_fill_all_places_of_the_workers_but_one(
    redis: Redis, workers: RegisterWorkers, environ: dict[str, str]
) -> None:
    for _ in range(14):
        queued("weekly")
    db.session.rollback()
    dispatched = []

    with create_app(Settings.from_environ({**environ, "REFINE_CONCURRENCY": "5"})).app_context():
        for more in (0, 1, 1):
            workers(more)
            dispatch()
            dispatched.append(len(waiting_in(redis, AUTOMATIC)))
        db.session.remove()
        db.engine.dispose()

    # with 0, 5 and 10 places
    assert dispatched == [1, 4, 9]


def test_workers_that_are_gone_do_not_count(redis: Redis, workers: RegisterWorkers) -> None:
    for _ in range(7):
        queued("weekly")
    workers(5, names=(TICKS,))  # which run no sessions
    gone, expired, *_ = workers(4)
    gone.register_death()
    redis.delete(expired.key)

    assert dispatch() == 1

    redis.flushall()
    made = workers(3)
    assert dispatch() == 1  # two are taken, one of them by the first
    workers(1)
    counted = []
    for silence in (SILENT_AFTER - timedelta(seconds=20), SILENT_AFTER):
        for worker in made:
            let_pass(redis, worker.key, silence)
        counted.append(live_workers(redis))
    assert counted == [4, 1]


def test_workers_that_redis_forgot_count_again_from_their_next_heartbeat(
    redis: Redis, workers: RegisterWorkers
) -> None:
    forgotten = workers(4)
    redis.flushall()
    for worker in forgotten:
        worker.heartbeat()
    for _ in range(4):
        queued("weekly")

    assert dispatch() == 3


def test_running_automatic_sessions_take_up_room_and_requested_ones_none(
    redis: Redis, workers: RegisterWorkers
) -> None:
    workers(5)
    running("weekly")
    running("over_budget")
    for trigger in BY_HAND:
        running(trigger)
        queued(trigger)
    for _ in range(5):
        queued("weekly")

    counts = [dispatch() for _ in range(2)]

    assert counts == [2 + len(BY_HAND), 0]
    assert len(waiting_in(redis, AUTOMATIC)) == 2


def test_no_automatic_session_is_dispatched_without_room(
    redis: Redis,
) -> None:
    for _ in range(3):
        running("weekly")
    queued("weekly")
    asked = queued("cli")

    count = dispatch()

    assert count == 1
    assert waiting_in(redis, REQUESTED) == ids_of(asked)


def test_a_session_that_ends_makes_room_for_the_next_one(redis: Redis) -> None:
    first, second, third = (queued("weekly", at=NOW + n * MOMENT) for n in range(3))
    dispatch()

    refine_session(str(first.id))

    for session in (first, second, third):
        db.session.refresh(session)
    assert [session.is_live for session in (first, second, third)] == [False, True, True]
    assert [session.dispatched_at for session in (second, third)] == [NOW, None]
    assert waiting_in(redis, AUTOMATIC) == ids_of(first, second)


def test_a_failed_job_makes_room_too(redis: Redis) -> None:
    session = queued("weekly")

    with pytest.raises(RunFault):
        refine_session(str(uuid.uuid4()))

    assert waiting_in(redis, AUTOMATIC) == ids_of(session)


def test_a_session_refused_by_the_database_makes_room_too(
    redis: Redis, workers: RegisterWorkers, refused_updates: None
) -> None:
    workers(3)
    broken = queued("weekly")
    broken.dispatched_at = NOW
    db.session.commit()
    session = queued("weekly")

    with pytest.raises(RunFault):
        refine_session(str(broken.id))

    assert waiting_in(redis, AUTOMATIC) == ids_of(session)


def test_the_oldest_is_dispatched_first(redis: Redis, workers: RegisterWorkers) -> None:
    workers(4)
    triggers: dict[str, Trigger] = {AUTOMATIC: "weekly", REQUESTED: "cli"}
    queues = {
        name: [queued(trigger, at=NOW - timedelta(hours=age)) for age in (2, 3, 1)]
        for name, trigger in triggers.items()
    }

    dispatch()

    for name, (second, first, third) in queues.items():
        assert waiting_in(redis, name) == ids_of(first, second, third)


def test_only_queued_sessions_are_dispatched(redis: Redis) -> None:
    triggers: tuple[Trigger, ...] = ("weekly", "cli")
    for trigger in triggers:
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


def test_sessions_that_redis_lost_are_dispatched_again_after_30_seconds(
    redis: Redis, workers: RegisterWorkers, now: time_machine.Traveller
) -> None:
    swept, requested, kept = queued("weekly"), queued("cli"), queued("cli")
    dispatch()
    redis.delete(f"rq:queue:{AUTOMATIC}")
    redis.lrem(f"rq:queue:{REQUESTED}", 1, str(requested.id))

    counts = [dispatch()]
    now.shift(ON_ITS_WAY - MOMENT)
    counts.append(dispatch())
    now.shift(MOMENT)
    counts.append(dispatch())

    assert counts == [0, 0, 2]
    assert waiting_in(redis, AUTOMATIC) == ids_of(swept)
    assert waiting_in(redis, REQUESTED) == ids_of(kept, requested)
    assert (swept.dispatched_at, kept.dispatched_at) == (NOW + ON_ITS_WAY, NOW)
    now.shift(timedelta(days=1))
    assert dispatch() == 0


def test_unreadable_data_in_redis_counts_as_missing(
    redis: Redis, workers: RegisterWorkers, now: time_machine.Traveller
) -> None:
    lost = queued("cli")
    dispatch()
    redis.delete(f"rq:queue:{REQUESTED}")
    workers(2)
    for number, beat in enumerate(("yesterday", b"\xff\xfe", "2026-13-01T00:00:00Z")):
        redis.hset(f"rq:worker:{number}", "last_heartbeat", beat)
    redis.set("rq:worker:no-hash", "x")
    names = [f"rq:worker:{name}" for name in (*range(3), "no-hash", "gone")]
    redis.sadd(f"rq:workers:{AUTOMATIC}", *names, b"\xff\xfe")
    for name in (REQUESTED, AUTOMATIC):
        redis.rpush(f"rq:queue:{name}", b"\xff\xfe", "no id", "\0")
    now.shift(ON_ITS_WAY)

    assert live_workers(redis) == 2
    assert dispatch() == 1
    assert lost.dispatched_at == NOW + ON_ITS_WAY


def test_a_claimed_session_is_not_dispatched_again(
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


def test_a_flushed_redis_makes_no_more_room(
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


def test_sessions_stay_queued_if_redis_refuses_a_job(redis: Redis) -> None:
    session = queued("cli")
    redis.set(f"rq:job:{session.id}", "no hash, as a job would be")

    with pytest.raises(Unreachable):
        dispatch()

    db.session.rollback()
    assert (session.status, session.dispatched_at) == ("queued", None)


# -- several dispatchers --------------------------------------------------------------------------


def test_concurrent_dispatchers_do_not_exceed_the_room(
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
    assert sorted(waiting_in(redis, REQUESTED)) == sorted(ids_of(*asked))
    assert set(waiting_in(redis, AUTOMATIC)) < set(ids_of(*swept))
    assert len(waiting_in(redis, AUTOMATIC)) == 2


def test_nobody_waits_for_a_dispatcher_that_was_stopped_in_the_middle(
    redis: Redis, environ: dict[str, str]
) -> None:
    asked, swept = queued("cli"), queued("weekly")

    with db.engine.begin() as stopped:
        stopped.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('refine.dispatch'))")
        during = dispatch()
        in_redis = waiting_in(redis, REQUESTED), waiting_in(redis, AUTOMATIC)
    after = dispatch()

    assert (during, in_redis) == (1, (ids_of(asked), []))
    assert (after, waiting_in(redis, AUTOMATIC)) == (1, ids_of(swept))


def test_a_run_is_marked_before_a_worker_can_take_it(redis: Redis) -> None:
    session = queued("cli")
    marked = []

    def look(_connection: Any, *_: Any) -> None:
        marked.append(waiting_in(redis, REQUESTED))

    event.listen(db.engine, "commit", look)
    try:
        dispatch()
    finally:
        event.remove(db.engine, "commit", look)

    assert marked[0] == []
    assert waiting_in(redis, REQUESTED) == ids_of(session)


def test_a_run_whose_dispatcher_died_before_the_push_is_dispatched_half_a_minute_later(
    redis: Redis, now: time_machine.Traveller
) -> None:
    session = queued("cli")
    session.dispatched_at = NOW
    db.session.commit()

    now.shift(ON_ITS_WAY - MOMENT)
    before = dispatch()
    now.shift(MOMENT)

    assert (before, dispatch()) == (0, 1)


def test_a_dispatch_that_cannot_be_undone_is_repeated_half_a_minute_later(
    redis: Redis, now: time_machine.Traveller, refused_resets: None
) -> None:
    session = queued("cli")
    redis.set(f"rq:job:{session.id}", "no hash, as a job would be")

    with pytest.raises(Unreachable):
        dispatch()

    assert session.dispatched_at == NOW
    db.session.rollback()
    sql.run("DROP TRIGGER refuse_resets ON refinement_sessions")
    redis.flushall()
    now.shift(ON_ITS_WAY)
    assert dispatch() == 1


def test_a_fault_of_the_database_leaves_dispatching_to_the_next_tick(
    redis: Redis, no_automatic: None
) -> None:
    asked = queued("cli")

    assert not dispatch_if_possible()

    assert waiting_in(redis, REQUESTED) == ids_of(asked)
    with pytest.raises(DBAPIError):
        dispatch()


def test_a_locked_session_delays_no_other(redis: Redis) -> None:
    held, free = queued("cli"), queued("cli")

    with db.engine.begin() as elsewhere:
        elsewhere.exec_driver_sql(
            f"SELECT 1 FROM refinement_sessions WHERE id = '{held.id}' FOR NO KEY UPDATE"
        )
        during = dispatch()
    after = dispatch()

    assert (during, after) == (1, 1)
    assert waiting_in(redis, REQUESTED) == ids_of(free, held)


def test_uncommitted_sessions_are_not_dispatched(app: Flask, redis: Redis) -> None:
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
