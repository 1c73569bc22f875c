"""The kept sums of ended runs are those of the rows."""

from decimal import Decimal

import pytest
from flask import Flask
from sqlalchemy import text

from refine.extensions import db
from refine.models import Agent, MemoryTask, RefinementSession
from refine.models.runs.sums import Sums, ended_sums
from tests import factories

OF_ROWS = """
SELECT kind, status, trigger, coalesce(error_kind, ''), count(*), sum(effect), sum(prompt_tokens),
  sum(cached_tokens), sum(completion_tokens), sum(cost_usd), sum(unpriced_calls)
FROM (
  SELECT 'session' AS kind, status, trigger, error_kind, ended_at, removed_tokens AS effect,
    prompt_tokens, cached_tokens, completion_tokens, cost_usd, unpriced_calls
  FROM refinement_sessions
  UNION ALL
  SELECT kind, status, trigger, error_kind, ended_at, memories_kept, prompt_tokens, cached_tokens,
    completion_tokens, cost_usd, unpriced_calls
  FROM memory_tasks
) AS runs
WHERE ended_at IS NOT NULL GROUP BY 1, 2, 3, 4
"""


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent("one", "two")


def ended(agent: Agent, status: str, **fields: object) -> RefinementSession:
    session = RefinementSession.queue(agent, "weekly")
    for name, value in fields.items():
        setattr(session, name, value)
    session.finish(status, "so it ended", error_kind="timeout" if status == "failed" else None)  # type: ignore[arg-type]
    db.session.flush()
    return session


def kept() -> list[Sums]:
    return sorted(each for each in ended_sums() if each.runs)


def of_rows() -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in db.session.execute(text(OF_ROWS)))


@pytest.fixture
def runs(agent: Agent) -> None:
    ended(agent, "declined", prompt_tokens=7, cost_usd=Decimal("0.25"))
    ended(agent, "declined", cached_tokens=3, completion_tokens=5, unpriced_calls=2)
    ended(agent, "failed")
    factories.ended_task(agent, "reflection", "completed", prompt_tokens=11)
    factories.ended_task(agent, "extraction", "failed", error_kind="timeout")
    factories.extraction(agent)
    RefinementSession.queue(agent, "manual")
    db.session.flush()


@pytest.mark.usefixtures("runs")
def test_the_kept_sums_are_those_of_the_ended_rows() -> None:
    assert kept() == of_rows()
    assert {each.kind for each in kept()} == {"session", "reflection", "extraction"}
    assert sum(each.runs for each in kept()) == 5


@pytest.mark.parametrize("model", [RefinementSession, MemoryTask])
@pytest.mark.usefixtures("runs")
def test_recounts_rows_that_were_changed_by_hand(
    model: type[RefinementSession | MemoryTask],
) -> None:
    changed = db.update(model).values(prompt_tokens=model.prompt_tokens + 100, error_kind="timeout")
    db.session.execute(changed.where(model.ended_at.is_not(None)))

    assert kept() == of_rows()


@pytest.mark.usefixtures("runs")
def test_many_rows_at_once_are_counted() -> None:
    db.session.execute(
        text("""
        INSERT INTO memory_tasks (agent_id, model_id, kind, trigger, status, ended_at)
        SELECT agent_id, 'test/m', 'reflection', 'daily', 'completed', now()
        FROM (SELECT min(agent_id) AS agent_id FROM memory_tasks) AS one, generate_series(1, 100)
        """)
    )

    assert kept() == of_rows()


@pytest.mark.usefixtures("runs")
def test_a_change_that_counts_nothing_writes_no_sum() -> None:
    written = text("SELECT kind, xmin, ctid FROM run_sums ORDER BY ctid")
    before = db.session.execute(written).all()

    db.session.execute(db.update(RefinementSession).values(turns=RefinementSession.turns + 1))

    assert db.session.execute(written).all() == before
