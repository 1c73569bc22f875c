"""Many agents due at once, and a provider that is away for hours."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Row, select

from refine import clock
from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.models import Account, Agent, RefinementSession
from refine.models.runs import LIVE
from tests import factories
from tests.commands import refine


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
