"""The heartbeat of a session's worker: what must not stop it, and what must."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Engine, event, text

from refine.extensions import db
from refine.jobs.tick import INTERVAL
from refine.models import RefinementSession
from refine.models.runs.run import LOST_AFTER
from refine.running import run_worker
from refine.running.run_worker import beating
from tests import factories, sql
from tests.commands import eventually

BEATS = "UPDATE %% SET heartbeat_at%%"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_worker, "INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(run_worker, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(
        run_worker, "_LIMITS", text("SET lock_timeout = '50ms'; SET statement_timeout = '1s'")
    )


@pytest.fixture
def session(app: Flask) -> RefinementSession:
    return factories.session()


@pytest.fixture
def beats(app: Flask) -> Iterator[list[int]]:
    """How many rows each beat has changed so far."""
    counted: list[int] = []

    def count(_connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if "UPDATE refinement_sessions SET heartbeat_at" in statement:
            counted.append(cursor.rowcount)

    event.listen(Engine, "after_cursor_execute", count)
    yield counted
    event.remove(Engine, "after_cursor_execute", count)


@contextmanager
def beating_for(session: RefinementSession) -> Iterator[None]:
    assert session.lease_token is not None
    with beating(session.id, session.lease_token):
        db.session.commit()
        yield


def beaten_at(session: RefinementSession) -> datetime:
    at = sql.value(f"SELECT heartbeat_at FROM refinement_sessions WHERE id = '{session.id}'")
    assert isinstance(at, datetime)
    return at


def beats_on(beats: list[int], *, times: int = 3) -> Callable[[], bool]:
    """Whether that many beats have come from now on."""
    before = len(beats)
    return lambda: len(beats) >= before + times


def hearts() -> list[int]:
    """The database's processes that a heart is connected to."""
    with db.engine.connect() as connection:
        return list(
            connection.exec_driver_sql(
                f"SELECT pid FROM pg_stat_activity WHERE query LIKE '{BEATS}'"
            ).scalars()
        )


# -- what does not stop it ------------------------------------------------------------------------


def test_a_locked_session_delays_the_beats_of_no_other(session, beats):
    other = factories.session()

    with beating_for(session), beating_for(other):
        eventually(lambda: 2 in beats)
        with db.engine.connect() as another:
            another.execute(
                text("SELECT 1 FROM refinement_sessions WHERE id = :id FOR UPDATE"),
                {"id": session.id},
            )
            while_locked = beaten_at(other)
            eventually(lambda: beaten_at(other) > while_locked, seconds=3)


def test_a_pool_without_a_free_connection_does_not_stop_it(session, beats):
    with beating_for(session), ExitStack() as pool:
        eventually(lambda: beats and beats[-1] == 1)
        first = len(beats)
        for _ in range(15):
            pool.enter_context(db.engine.connect())
        more = beats_on(beats)

        eventually(more, seconds=5)
        while_full = beats[first:]

    assert db.engine.pool.size() + db.engine.pool._max_overflow == 15  # type: ignore[attr-defined]
    assert set(while_full) == {1}


def test_a_connection_that_was_cut_is_replaced(session, beats):
    with beating_for(session):
        eventually(lambda: len(hearts()) == 1)
        (first,) = hearts()
        sql.value(f"SELECT pg_terminate_backend({first})")
        more = beats_on(beats)

        eventually(more, seconds=5)
        (second,) = hearts()

    assert second != first


def test_behind_a_pooler_it_leaves_no_limits_to_others(session, beats):
    def as_pooled(connection: Any, _record: Any) -> None:
        connection.prepare_threshold = None

    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread().name == "refine-heartbeat":
            sent.append(statement.split()[0])

    event.listen(db.engine, "connect", as_pooled)
    event.listen(db.engine, "after_cursor_execute", note)
    db.engine.dispose()  # a connection that other tests left open was not made as pooled
    with beating_for(session):
        eventually(lambda: 1 in beats)
    event.remove(db.engine, "after_cursor_execute", note)
    event.remove(db.engine, "connect", as_pooled)

    assert set(sent) == {"UPDATE"}


# -- many sessions ---------------------------------------------------------------------------------


def test_all_sessions_of_a_process_are_stamped_over_one_connection(app, beats):
    sessions = [factories.session() for _ in range(3)]

    with ExitStack() as held:
        for session in sessions:
            held.enter_context(beating_for(session))
        eventually(lambda: beats[-2:] == [3, 3])
        connections = hearts()

    assert len(connections) == 1
    assert len({beaten_at(session) for session in sessions}) == 1


def test_one_session_that_ends_leaves_the_others_their_heartbeat(session, beats):
    with beating_for(session):
        with beating_for(factories.session()):
            eventually(lambda: 2 in beats)
        more = beats_on(beats)
        eventually(more)

    assert beats[-1] == 1


# -- what it does not touch -----------------------------------------------------------------------


def test_a_beat_under_another_lease_changes_nothing(session, beats):
    before = beaten_at(session)

    with beating(session.id, uuid.uuid4()):
        eventually(beats_on(beats))

    assert set(beats) == {0}
    assert beaten_at(session) == before


# -- its end --------------------------------------------------------------------------------------


def test_it_stops_with_the_session_and_closes_its_connection(session, beats):
    with beating_for(session):
        eventually(lambda: beats)

    assert [each for each in threading.enumerate() if each.name == "refine-heartbeat"] == []
    eventually(lambda: hearts() == [])


def test_a_lost_worker_has_missed_three_beats_and_is_found_within_two_minutes(monkeypatch):
    monkeypatch.undo()

    three_beats = timedelta(seconds=3 * run_worker.INTERVAL_SECONDS)
    found_after = LOST_AFTER + INTERVAL

    assert three_beats < LOST_AFTER
    assert found_after < timedelta(minutes=2)
