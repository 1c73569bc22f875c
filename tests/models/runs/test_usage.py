"""What agents used: by agent, model and month, in their account's time zone."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Row, Select

from refine.extensions import db
from refine.models import Agent
from refine.models.runs.usage import (
    Months,
    Used,
    by_month,
    used_by_agent,
    used_by_model,
    used_by_month,
    with_total,
)
from tests import factories
from tests.models.runs.test_spending import MOMENT, NOW, costly, everything, unpriced

MARCH = Months.up_to(date(2026, 3, 1))


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent("a core memory", name="Ada")


def test_month_by_month_all_three_are_in_one_row(agent: Agent) -> None:
    everything(agent)
    factories.ended_task(agent, "extraction", "failed", at=NOW - timedelta(days=20))
    everything(factories.agent("one"))

    rows = by_month(agent.account, [agent.id])

    assert rows == [
        ("2026-02", agent.id, "Ada", 0, 0, 1, 0, 0, 0, 0, 0),
        ("2026-03", agent.id, "Ada", 1, 1, 1, 120, 10, 2, Decimal("1.75"), 0),
    ]
    assert by_month(agent.account, [agent.id], since=NOW) == rows[1:]
    assert by_month(agent.account, [agent.id], until=NOW) == rows[:1]


def test_the_sums_tell_how_many_calls_are_unpriced(agent: Agent) -> None:
    unpriced(agent)
    costly(agent, "1")

    (month,) = by_month(agent.account, [agent.id])

    assert (month.cost_usd, month.unpriced_calls) == (Decimal("1.5"), 1)


def rows_of(used: Select[Any]) -> Sequence[Row[Any]]:
    return db.session.execute(with_total(used.cte())).all()


def test_nothing_used_is_zero_of_everything(agent: Agent) -> None:
    assert Used.total_of(rows_of(used_by_agent(MARCH, None))) == (0, 0, 0, 0, 0, 0, 0, 0)


def test_agents_models_and_months_add_up_to_the_same(agent: Agent) -> None:
    other = factories.agent("one", account=agent.account, model_id="other/model")
    for each in (agent, other, factories.agent("one")):
        everything(each)
        everything(each, at=NOW - timedelta(days=20))
    unpriced(other)
    in_all = (3, 2, 2, 1240, 420, 104, Decimal(4), 1)

    for used_by in (used_by_agent, used_by_model, used_by_month):
        rows = rows_of(used_by(MARCH, agent.account_id))
        figures = [Used.of(row) for row in rows]
        assert Used.total_of(rows) == in_all
        assert tuple(map(sum, zip(*figures, strict=True))) == in_all
    platform = by_month(agent.account, [agent.id, other.id], since=datetime(2026, 3, 1, tzinfo=UTC))
    assert sum(month.cost_usd for month in platform) == 4


def test_rows_tell_what_they_are_about(agent: Agent) -> None:
    everything(agent)
    everything(agent, at=NOW - timedelta(days=20))
    account = agent.account

    (by_agent,) = db.session.execute(used_by_agent(MARCH, None)).all()
    (by_model,) = db.session.execute(used_by_model(MARCH, None)).all()
    months = db.session.execute(used_by_month(Months.up_to(date(2026, 3, 1), 2), None)).all()

    assert by_agent[:4] == (agent.id, "Ada", account.name, account.slug)
    assert by_model.model_id == agent.model_id
    assert {row.month for row in months} == {date(2026, 2, 1), date(2026, 3, 1)}


@pytest.mark.parametrize(
    ("zone", "offset"),
    [
        ("UTC", "+00:00"),
        ("Asia/Tokyo", "+09:00"),
        ("Pacific/Kiritimati", "+14:00"),
        ("Pacific/Pago_Pago", "-11:00"),
    ],
)
def test_each_account_counts_by_its_own_clock(agent: Agent, zone: str, offset: str) -> None:
    agent.account.time_zone = zone
    begins = datetime.fromisoformat(f"2026-03-01T00:00{offset}")
    ends = datetime.fromisoformat(f"2026-04-01T00:00{offset}")
    for at, usd in [(begins - MOMENT, 1), (begins, 2), (ends - MOMENT, 4), (ends, 8)]:
        costly(agent, str(usd), at=at)

    (month,) = rows_of(used_by_month(MARCH, None))
    assert (month.month, month.cost_usd) == (MARCH.since, 6)
