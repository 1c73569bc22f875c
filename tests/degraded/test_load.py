"""Many agents due at once, and a provider that is away for hours."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from flask import Flask
from sqlalchemy import Row, select

from refine import clock
from refine.extensions import db
from refine.jobs.runs import work_on
from refine.jobs.tick import run_tick
from refine.models import Account, Agent, RefinementSession, User
from refine.models.runs import LIVE
from tests import factories
from tests.commands import UNUSED_PORT
from tests.degraded.breaking import BreakableRedis
from tests.forked import refine
from tests.scripted_model import ScriptedModel
from tests.web.conftest import signed_in_browser, words_of

SLOT = datetime(2026, 3, 2, 4, tzinfo=UTC)
HOUR = timedelta(hours=1)
WEEK = timedelta(weeks=1)


def sessions() -> Sequence[Row[Any]]:
    """All of them, the oldest first; no transaction stays open."""
    db.session.rollback()
    columns = (
        *(RefinementSession.agent_id, RefinementSession.status, RefinementSession.trigger),
        *(RefinementSession.attempt, RefinementSession.created_at),
        *(RefinementSession.error_kind, RefinementSession.memories_before),
    )
    found = db.session.execute(select(*columns).order_by(RefinementSession.created_at)).all()
    db.session.commit()
    return found


def some_agents(account: Account, count: int, **fields: str) -> list[Agent]:
    made = [
        factories.agent(
            *(factories.text_of(25) for _ in range(4)),
            account=account,
            name=f"Agent {number}",
            **fields,
        )
        for number in range(count)
    ]
    db.session.commit()
    return made


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.nightly)])
def test_each_of_many_agents_that_are_due_at_once_gets_one_session(
    its_app: Flask, its_environ: dict[str, str], account: Account, count: int
) -> None:
    account.next_due_at = clock.now() - timedelta(seconds=1)
    agents = some_agents(account, count, model_id="rehearsal/x")

    ended = 0
    while ended < count:
        with its_app.app_context():
            run_tick()
            db.session.remove()
        worked = refine(
            *("worker", "--burst"),
            environ={**its_environ, "REFINE_CONCURRENCY": "10"},
            seconds=3_600,
        )
        assert worked.returncode == 0
        before, ended = ended, sum(each.status not in LIVE for each in sessions())
        assert ended > before

    found = sessions()
    assert Counter(each.agent_id for each in found) == Counter(agent.id for agent in agents)
    assert {each.trigger for each in found} == {"weekly"}
    assert {each.status for each in found} <= {"completed", "rolled_back"}
    audited = refine("audit", "verify", environ=its_environ, seconds=600)
    assert audited.returncode == 0, audited.stdout


@pytest.fixture
def hours(app: Flask) -> Iterator[time_machine.Traveller]:
    """A clock that can be put forward; it begins before SLOT."""
    with time_machine.travel(SLOT - 2 * HOUR, tick=True) as traveller:
        yield traveller


def test_a_provider_that_is_away_for_hours_loses_no_session(
    hours: time_machine.Traveller,
    its_app: Flask,
    model: ScriptedModel,
    account: Account,
    admin: User,
    breakable: BreakableRedis,
) -> None:
    account.next_due_at = SLOT
    agents = some_agents(account, 2)
    of_model(its_app, f"http://127.0.0.1:{UNUSED_PORT}/v1")

    for minutes in (0, 4, 5, 20, 35, 36, 90, 156, 300, 600):
        hours.move_to(SLOT + timedelta(minutes=minutes))
        tick_and_work(its_app)
    away = sessions()
    overview = words_of(signed_in_browser(its_app, admin).get("/").text)
    of_model(its_app, model.base_url)
    for _ in agents:
        model.say("Yes.").call("complete", summary="all is well")
    hours.move_to(SLOT + WEEK)
    tick_and_work(its_app)

    attempts = [[each for each in away if each.agent_id == agent.id] for agent in agents]
    assert [[each.attempt for each in those] for those in attempts] == [[1, 2, 3, 4]] * 2
    for those in attempts:
        pauses = [(b.created_at - a.created_at) for a, b in zip(those, those[1:], strict=False)]
        assert pauses == sorted(pauses)
        assert {each.status for each in those} == {"failed"}
        assert {each.error_kind for each in those} == {"connection"}
    assert "2 agents The connection to" in overview
    assert [each.status for each in sessions()[len(away) :]] == ["completed"] * 2


def of_model(app: Flask, base_url: str) -> None:
    known = app.extensions["refine.settings"]
    app.extensions["refine.settings"] = replace(known, openrouter_base_url=base_url)


def tick_and_work(app: Flask) -> None:
    """What the clock and a worker do now."""
    with app.app_context():
        run_tick()
        waiting = select(RefinementSession.id).where(RefinementSession.is_waiting)
        while ids := db.session.scalars(waiting).all():
            db.session.commit()
            for id_ in ids:
                work_on(str(id_))
        db.session.remove()
