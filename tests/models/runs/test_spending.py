"""What agents used and cost: the same sums for the cap, the pages and the platform."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import Row, true

from refine import settings
from refine.extensions import db
from refine.models import Account, Agent, RefinementSession
from refine.models.runs.spending import (
    CostCaps,
    Used,
    accounts_at_cap,
    spent_by_agents,
    used_by,
    with_total,
)
from refine.rules.prices import price_of
from tests import factories

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent("a core memory", name="Ada")


def costly(owner: Agent, usd: str, at: datetime = NOW) -> None:
    """A session of which only its cost matters."""
    session = RefinementSession.queue(owner, "manual", at=at)
    session.cost_usd, session.prompt_tokens = Decimal(usd), 100
    session.saved_tokens = 5
    session.finish("completed", "so it ended", at=at)
    db.session.flush()


def month_of(account: Account, at: datetime = NOW) -> tuple[Decimal, bool]:
    """What the account's runs cost this month, and whether that is partly unknown."""
    return spent_by_agents(at, Agent.account_id == account.id)


def everything(owner: Agent, at: datetime = NOW) -> None:
    """One of each kind."""
    costly(owner, "1", at)
    tokens = {"prompt_tokens": 10, "cached_tokens": 5, "completion_tokens": 1}
    factories.ended_task(owner, "reflection", at=at, cost_usd=Decimal("0.25"), **tokens)
    factories.ended_task(owner, "extraction", at=at, cost_usd=Decimal("0.5"), **tokens)


def test_every_kind_of_run_of_the_account_counts(agent):
    everything(factories.agent("one"))
    assert month_of(agent.account)[0] == 0

    everything(agent)
    everything(factories.agent("one", account=agent.account))
    assert month_of(agent.account)[0] == Decimal("3.5")


def test_agents_of_several_accounts_are_summed_up_by_the_month_of_each(agent):
    began_in_tokyo = datetime(2026, 2, 28, 15, tzinfo=UTC)
    in_tokyo = factories.agent("one", account=factories.account(time_zone="Asia/Tokyo"))
    costly(agent, "5", at=began_in_tokyo)
    costly(in_tokyo, "7", at=began_in_tokyo)

    assert spent_by_agents(NOW, true()) == (Decimal(7), False)


@pytest.mark.parametrize(
    ("zone", "at", "began_at"),
    [
        ("UTC", "2026-05-01T00:00+00:00", "2026-05-01T00:00+00:00"),
        ("UTC", "2026-05-31T23:59:59.999999+00:00", "2026-05-01T00:00+00:00"),
        ("Asia/Tokyo", "2026-04-30T15:00+00:00", "2026-05-01T00:00+09:00"),
        ("Asia/Tokyo", "2026-04-30T14:59:59+00:00", "2026-04-01T00:00+09:00"),
        ("America/New_York", "2027-01-01T04:59:59+00:00", "2026-12-01T00:00-05:00"),
        ("America/New_York", "2027-01-01T05:00+00:00", "2027-01-01T00:00-05:00"),
        ("Europe/Berlin", "2026-03-31T12:00+02:00", "2026-03-01T00:00+01:00"),
        ("America/Havana", "2026-11-01T00:30-05:00", "2026-11-01T00:00-04:00"),
        ("America/Asuncion", "2023-10-02T12:00-03:00", "2023-10-01T01:00-03:00"),
    ],
)
def test_a_month_begins_at_the_first_midnight_of_its_first_day_in_the_accounts_zone(
    agent, zone, at, began_at
):
    agent.account.time_zone = zone
    began = datetime.fromisoformat(began_at)
    costly(agent, "1", at=began - MOMENT)
    costly(agent, "2", at=began)

    assert month_of(agent.account, datetime.fromisoformat(at))[0] == 2


# -- unknown costs --------------------------------------------------------------------------------


def unpriced(owner: Agent, at: datetime = NOW) -> None:
    """A session of three calls, two of which named their cost."""
    session = RefinementSession.queue(owner, "manual", at=at)
    session.llm_calls, session.unpriced_calls, session.cost_usd = 3, 1, Decimal("0.5")
    session.prompt_tokens, session.cached_tokens, session.completion_tokens = 1_000, 400, 100
    session.finish("completed", "so it ended", at=at)
    db.session.flush()


def is_capped(account: Account) -> tuple[str | None, bool]:
    """Whether the cap stops automatic runs: the reason in Python, and the condition in SQL."""
    db.session.flush()
    found = db.session.execute(accounts_at_cap(NOW).where(Account.id == account.id)).first()
    return CostCaps(NOW).reason(account), found is not None


def test_a_cap_that_cannot_be_checked_stops_automatic_runs(agent):
    unpriced(agent)
    assert is_capped(agent.account) == (None, False)  # it has no cap

    agent.account.monthly_cost_cap_usd = Decimal(100)

    reason, by_sql = is_capped(agent.account)
    assert reason == (
        "the account's monthly cost cap of $100 cannot be checked, because the cost of some runs "
        "is unknown: set prices in REFINE_PRICES, or remove the cap"
    )
    assert by_sql


def test_a_cap_that_is_spent_says_so_even_if_some_costs_are_unknown(agent):
    unpriced(agent)
    costly(agent, "100")
    agent.account.monthly_cost_cap_usd = Decimal(100)

    reason, by_sql = is_capped(agent.account)

    assert reason == "the account's monthly cost cap of $100 is reached"
    assert by_sql


def test_unknown_costs_of_other_months_and_accounts_stop_nothing(agent):
    unpriced(agent, NOW - timedelta(days=20))
    unpriced(factories.agent("one"))
    agent.account.monthly_cost_cap_usd = Decimal(100)

    assert is_capped(agent.account) == (None, False)
    assert not month_of(agent.account)[1]
    unpriced(agent)
    assert month_of(agent.account)[1]


@pytest.mark.parametrize("name", ["test/model", "*"])
def test_prices_set_later_count_for_the_runs_of_the_month(with_prices, agent, name):
    unpriced(agent)
    costly(agent, "1")
    agent.account.monthly_cost_cap_usd = Decimal(100)
    prices = '{"prompt": "0.001", "completion": "0.01", "input_cache_read": "0.0005"}'

    with_prices(f'{{"{name}": {prices}}}')

    # 600 x 0.001 + 400 x 0.0005 + 100 x 0.01, the known cost, and the other session
    assert month_of(agent.account)[0] == Decimal("3.3")
    assert spent_by_agents(NOW, Agent.id == agent.id) == (Decimal("3.3"), False)
    assert is_capped(agent.account) == (None, False)
    agent.account.monthly_cost_cap_usd = Decimal("3.3")
    assert is_capped(agent.account) == ("the account's monthly cost cap of $3.3 is reached", True)


@pytest.mark.parametrize(
    "model_id", ["a/b", "a/b:floor", "a/b:free", "a/b:8b", "a/b:free:floor", "a/b:floors", "c/d"]
)
def test_a_price_is_looked_up_in_sql_as_in_python(with_prices, agent, model_id):
    prices = {"a/b": 0.001, "a/b:free": 0.002, "a/b:8b": 0.003, "*": 0.004}
    priced = {name: {"prompt": usd, "completion": usd} for name, usd in prices.items()}
    agent.model_id = model_id
    factories.ended_task(agent, "reflection", at=NOW, prompt_tokens=1_000, unpriced_calls=1)

    with_prices(json.dumps(priced))

    price = price_of(model_id, settings.current().prices)
    assert price is not None
    assert month_of(agent.account)[0] == 1_000 * price.prompt


# -- usage -----------------------------------------------------------------------------------------

MARCH = (date(2026, 3, 1), date(2026, 4, 1))


def test_month_by_month_all_three_are_in_one_row(agent):
    everything(agent)
    factories.ended_task(agent, "extraction", "failed", at=NOW - timedelta(days=20))
    everything(factories.agent("one"))

    rows = by_agent_and_month(agent)

    assert rows == [
        (date(2026, 2, 1), 0, 0, 1, *[0] * 9),
        (date(2026, 3, 1), 1, 1, 1, 120, 10, 2, Decimal("1.75"), 0, 0, 0, 0, 5),
    ]
    assert by_agent_and_month(agent, since=NOW.date()) == rows[1:]
    assert by_agent_and_month(agent, until=NOW.date()) == rows[:1]


def by_agent_and_month(agent, since=None, until=None):
    """The month and the figures of each row of this agent."""
    used = used_by("agent and month", since, until, agent.account_id).order_by("month")
    rows = db.session.execute(used.where(Agent.id == agent.id)).all()
    assert {tuple(row[:2]) for row in rows} <= {(agent.id, "Ada")}
    return [tuple(row[4:]) for row in rows]


def rows_of(
    what: str, months: tuple[date, date] = MARCH, account_id: int | None = None
) -> Sequence[Row[Any]]:
    return db.session.execute(with_total(used_by(what, *months, account_id).cte())).all()


def test_agents_models_and_months_add_up_to_the_same(agent):
    other = factories.agent("one", account=agent.account, model_id="other/model")
    for each in (agent, other, factories.agent("one")):
        everything(each)
        everything(each, at=NOW - timedelta(days=20))
    unpriced(other)
    in_all = (3, 2, 2, 1240, 420, 104, Decimal(4), 1, 10)

    for what in ("agent", "model", "month"):
        rows = rows_of(what, account_id=agent.account_id)
        figures = [Used.of(row) for row in rows]
        assert Used.total_of(rows) == in_all
        assert tuple(map(sum, zip(*figures, strict=True))) == in_all
    assert sum(row.cost_usd for row in rows_of("agent and month", account_id=agent.account_id)) == 4


@pytest.mark.parametrize(
    ("zone", "offset"),
    [
        ("UTC", "+00:00"),
        ("Asia/Tokyo", "+09:00"),
        ("Pacific/Kiritimati", "+14:00"),
        ("Pacific/Pago_Pago", "-11:00"),
    ],
)
def test_each_account_counts_by_its_own_clock(agent, zone, offset):
    agent.account.time_zone = zone
    begins = datetime.fromisoformat(f"2026-03-01T00:00{offset}")
    ends = datetime.fromisoformat(f"2026-04-01T00:00{offset}")
    for at, usd in [(begins - MOMENT, 1), (begins, 2), (ends - MOMENT, 4), (ends, 8)]:
        costly(agent, str(usd), at=at)

    (month,) = rows_of("month")
    assert (month.month, month.cost_usd) == (MARCH[0], 6)
