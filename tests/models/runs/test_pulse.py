"""Pulses: what the ticks of the last day found, in as many rows as a day has minutes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from flask import Flask

from refine.extensions import db
from refine.models import ClockMark, MemoryTask, Pulse, RefinementSession
from refine.models.runs.pulse import Span, spans
from tests import factories, sql

NOW = datetime(2026, 3, 4, 12, 5, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


@pytest.fixture(autouse=True)
def now(app: Flask) -> Iterator[None]:
    with time_machine.travel(NOW, tick=False):
        yield


def take(at: datetime, workers: int | None = 1) -> None:
    Pulse.take(at, workers=workers, silent_workers=0)
    ClockMark.note("tick", at)


def test_a_pulse_tells_what_waits_since_when_and_who_works() -> None:
    ClockMark.note("tick", NOW - 3 * MINUTE)
    RefinementSession.queue(factories.agent("one"), "manual", at=NOW - 2 * MINUTE)
    MemoryTask.reflect(factories.agent(), "daily", at=NOW - 7 * MINUTE)
    factories.session()

    Pulse.take(NOW, workers=2, silent_workers=1)

    pulse = Pulse.last()
    assert pulse is not None
    assert (pulse.at, pulse.pause_seconds, pulse.running) == (NOW, 180, 1)
    assert (pulse.waiting, pulse.waiting_seconds) == (2, 420)
    assert (pulse.workers, pulse.silent_workers) == (2, 1)


def test_each_day_overwrites_the_one_before() -> None:
    for at in (NOW - DAY, NOW - MINUTE, NOW):
        take(at)
    db.session.commit()

    assert sql.value("SELECT count(*) FROM pulses") == 2
    assert sql.value("SELECT min(at) FROM pulses") == NOW - MINUTE


def test_the_last_day_is_told_in_spans_with_gaps_where_the_clock_was_away() -> None:
    for minutes, workers in ((31, 3), (2, 2), (1, 1), (0, None)):
        take(NOW - minutes * MINUTE, workers)

    told = spans(NOW)

    number = int(NOW.timestamp()) // 600
    assert len(told) == 144
    assert told[-1] == Span(number, NOW, 29 * 60, 0, 0, 1)
    assert told[-4] == Span(number - 3, NOW - 31 * MINUTE, 0, 0, 0, 3)
    assert [each for each in told if each is not None] == [told[-4], told[-1]]


def test_pulses_older_than_a_day_are_left_out() -> None:
    take(NOW - DAY)

    assert set(spans(NOW)) == {None}


def test_there_is_no_last_pulse_before_the_first_tick() -> None:
    assert Pulse.last() is None
