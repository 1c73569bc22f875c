"""The usage page: by agent, model and month, against the cost cap, and as CSV."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine

from refine.extensions import db
from refine.models import Account, Agent, RefinementSession, User
from tests import factories
from tests.web.conftest import Browser, SignedIn, links_of, person, words_of

NOW = datetime(2026, 3, 17, 12, tzinfo=UTC)  # fourteen days and a half before the month ends
LAST_MONTH = NOW - timedelta(days=20)


@pytest.fixture(autouse=True)
def in_march() -> Iterator[None]:
    with time_machine.travel(NOW, tick=True):
        yield


@pytest.fixture
def account(admin: User) -> Account:
    return admin.account


def spent(agent: Agent, usd: str, at: datetime | None = None, **fields: object) -> None:
    """A session that cost so much."""
    session = RefinementSession.queue(agent, "weekly", at=at or NOW - timedelta(minutes=1))
    session.cost_usd = Decimal(usd)
    for name, value in fields.items():
        setattr(session, name, value)
    session.finish("completed", "so it ended", at=at)
    db.session.commit()


def said(browser: Browser, path: str = "/usage") -> str:
    answer = browser.get(path)
    assert answer.status_code == 200
    return words_of(answer.text)


def rows(browser: Browser, path: str = "/usage") -> list[str]:
    """What the rows of the table say."""
    body = browser.get(path).text.partition("<tbody")[2].partition("</tbody>")[0]
    return [words_of(row) for row in re.findall("<tr[^>]*>.*?</tr>", body, flags=re.DOTALL)]


def exported(browser: Browser, path: str = "/usage/export.csv") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(browser.get(path).text)))


# -- by agent, model and month ---------------------------------------------------------------------


@pytest.fixture
def busy(account: Account) -> dict[str, Agent]:
    """Two agents of this account and one of another, with something in both months."""
    ada = factories.agent("one", account=account, name="Ada", model_id="test/large")
    bo = factories.agent("one", account=account, name="bo", model_id="test/small")
    eve = factories.agent("one", account=factories.account(name="Elsewhere"), name="Nightjar")
    spent(ada, "1", prompt_tokens=2000, cached_tokens=500, completion_tokens=30)
    spent(bo, "3", prompt_tokens=1000)
    spent(bo, "0.5", at=LAST_MONTH)
    factories.ended_task(ada, "reflection", at=NOW - timedelta(hours=2), prompt_tokens=7)
    factories.ended_task(ada, "extraction", at=NOW - timedelta(hours=3))
    spent(eve, "9")
    return {"ada": ada, "bo": bo, "eve": eve}


def test_agents_of_this_month_are_listed_with_all_their_figures(
    dashboard: Browser, busy: dict[str, Agent]
) -> None:
    assert rows(dashboard) == [
        "bo 1 0 0 1,000 0 0 $3.00 75%",
        "Ada 1 1 1 2,007 500 30 $1.00 25%",
    ]
    words = said(dashboard)
    assert "What the agents of Own account used in March 2026" in words
    assert "Cost $4.00 Sessions 2 Reflections 1 Conversations 1 Prompt tokens 3,007 17%" in words
    assert f"/agents/{busy['bo'].id}" in links_of(dashboard.get("/usage").text)


def test_agents_are_sorted_by_the_headings(dashboard: Browser, busy: dict[str, Agent]) -> None:
    orders = {
        order: [row.split()[0] for row in rows(dashboard, f"/usage?sort={order}")]
        for order in ("name", "sessions", "tokens", "cost", "nonsense")
    }

    assert orders == {
        "name": ["Ada", "bo"],
        "sessions": ["Ada", "bo"],
        "tokens": ["Ada", "bo"],
        "cost": ["bo", "Ada"],
        "nonsense": ["bo", "Ada"],
    }


def test_a_small_share_of_the_cost_is_not_none(dashboard: Browser, account: Account) -> None:
    for name, usd in (("Large", "99.9"), ("Small", "0.1"), ("Free", "0")):
        spent(factories.agent(account=account, name=name), usd)

    large, small, free = rows(dashboard)

    assert large.endswith("100%")
    assert small.endswith(" <1%")
    assert free.endswith(" 0%")


def test_models_are_listed(dashboard: Browser, busy: dict[str, Agent]) -> None:
    assert rows(dashboard, "/usage?by=model&sort=name") == [
        "test/large 1 1 1 2,007 500 30 $1.00 25%",
        "test/small 1 0 0 1,000 0 0 $3.00 75%",
    ]


def test_the_last_twelve_months_are_listed_newest_first(
    dashboard: Browser, busy: dict[str, Agent]
) -> None:
    spent(busy["ada"], "4", at=NOW - timedelta(days=340))  # in April
    spent(busy["ada"], "64", at=NOW - timedelta(days=370))

    listed = rows(dashboard, "/usage?by=month")

    assert [row.split(" $")[0] for row in listed] == [
        "March 2026 2 1 1 3,007 500 30",
        "February 2026 1 0 0 0 0 0",
        "April 2025 1 0 0 0 0 0",
    ]
    assert "Cost $8.50" in said(dashboard, "/usage?by=month")


def test_a_month_leads_to_its_agents(dashboard: Browser, busy: dict[str, Agent]) -> None:
    links = links_of(dashboard.get("/usage?by=month").text)
    (february,) = [link for link in links if "month=2026-02" in link]

    assert rows(dashboard, february) == ["bo 1 0 0 0 0 0 $0.5000 100%"]


@pytest.mark.parametrize("month", ["2026-13", "nonsense", "", "2026", "1926-01"])
def test_an_invalid_month_is_this_one(
    dashboard: Browser, busy: dict[str, Agent], month: str
) -> None:
    assert rows(dashboard, f"/usage?month={month}") == rows(dashboard)


def test_a_month_without_usage_says_so(dashboard: Browser, account: Account) -> None:
    page = dashboard.get("/usage?month=2019-05").text

    assert "Nothing was used in May 2019." in words_of(page)
    assert re.search(r'<option value="2019-05" selected>\s*May 2019', page)
    assert "Nothing was used in the last 12 months." in said(dashboard, "/usage?by=month")


def test_the_month_is_the_accounts(signed_in: SignedIn, account: Account, admin: User) -> None:
    account.time_zone = "Asia/Tokyo"
    spent(factories.agent("one", account=account, name="Ada"), "1", at=NOW)

    with time_machine.travel(datetime(2026, 3, 31, 16, tzinfo=UTC), tick=False):
        words = said(signed_in(admin))

    assert "Nothing was used in April 2026." in words
    assert "April 2026 so far" in words


def test_unknown_costs_are_said(dashboard: Browser, account: Account) -> None:
    spent(factories.agent("one", account=account, name="Ada"), "1", unpriced_calls=2)
    spent(factories.agent("one", account=account, name="Bo"), "0", unpriced_calls=1)

    words = said(dashboard)

    assert rows(dashboard)[0].endswith("at least $1.00 100%")
    assert rows(dashboard)[1].endswith("unknown 0%")
    assert "The cost of 3 calls is unknown and not included" in words


# -- whose -----------------------------------------------------------------------------------------


def test_a_site_admin_sees_all_accounts_or_one(
    signed_in: SignedIn, account: Account, busy: dict[str, Agent]
) -> None:
    browser = signed_in(person(site_admin=True))

    assert [row.split(" 1 ")[0] for row in rows(browser)] == [
        "Nightjar Elsewhere",
        "bo Own account",
        "Ada Own account",
    ]
    assert "What all agents used" in said(browser)
    assert "in the time zone of its account" in said(browser)
    assert [row.split()[0] for row in rows(browser, "/usage?account=own")] == ["bo", "Ada"]
    assert len(exported(browser, "/usage/export.csv")) == 3
    assert len(exported(browser, "/usage/export.csv?account=own")) == 2


# -- CSV -------------------------------------------------------------------------------------------


def test_agents_are_exported(dashboard: Browser, busy: dict[str, Agent]) -> None:
    answer = dashboard.get("/usage/export.csv?by=agent&month=2026-03&sort=name")

    (ada, bo) = csv.DictReader(io.StringIO(answer.text))
    assert answer.headers["Content-Disposition"] == (
        "attachment; filename=usage-2026-03-by-agent.csv"
    )
    assert answer.mimetype == "text/csv"
    assert ada == {
        "month": "2026-03",
        "account": "own",
        "agent_id": str(busy["ada"].id),
        "agent": "Ada",
        "sessions": "1",
        "reflections": "1",
        "conversations": "1",
        "prompt_tokens": "2007",
        "cached_tokens": "500",
        "completion_tokens": "30",
        "cost_usd": "1.000000",
        "unpriced_calls": "0",
    }
    assert bo["agent"] == "bo"


def test_an_export_has_all_rows_of_its_page(dashboard: Browser, account: Account) -> None:
    for number in range(60):
        agent = factories.agent(account=account)
        factories.ended_task(agent, "reflection", at=NOW, cost_usd=Decimal(number))
    db.session.commit()
    links = links_of(dashboard.get("/usage?month=2026-03").text)
    (link,) = [link for link in links if "export.csv" in link]

    costs = [Decimal(row["cost_usd"]) for row in exported(dashboard, link)]

    assert len(rows(dashboard)) == 50
    assert costs == [Decimal(number) for number in reversed(range(60))]


def test_models_and_months_are_exported(dashboard: Browser, busy: dict[str, Agent]) -> None:
    by_model = exported(dashboard, "/usage/export.csv?by=model")
    answer = dashboard.get("/usage/export.csv?by=month")
    by_month = list(csv.DictReader(io.StringIO(answer.text)))

    assert [(row["month"], row["model"]) for row in by_model] == [
        ("2026-03", "test/small"),
        ("2026-03", "test/large"),
    ]
    assert [(row["month"], row["cost_usd"]) for row in by_month] == [
        ("2026-03", "4.000000"),
        ("2026-02", "0.500000"),
    ]
    assert answer.headers["Content-Disposition"] == "attachment; filename=usage-by-month.csv"


def test_a_model_that_is_named_like_an_address_is_hidden(
    dashboard: Browser, account: Account
) -> None:
    spent(factories.agent("one", account=account), "1", model_id="ada@example.org")

    for path in ("/usage?by=model", "/usage/export.csv?by=model"):
        page = dashboard.get(path).text
        assert "hidden: it looks like an address" in page
        assert "ada@" not in page


# -- against the cap -------------------------------------------------------------------------------


@pytest.fixture
def capped(account: Account) -> Callable[..., None]:
    """An account with this cap, whose agent spent so much before the last week, and in it."""

    def capped(cap: str | None, before: str, lately: str, **fields: int) -> None:
        account.monthly_cost_cap_usd = None if cap is None else Decimal(cap)
        agent = factories.agent("one", account=account)
        spent(agent, before, at=NOW - timedelta(days=8), **fields)
        spent(agent, lately)

    return capped


@pytest.mark.parametrize(
    ("cap", "before", "lately", "words"),
    [
        (
            *("25", "5", "7"),
            "$12.00 of $25.00 spent (48%) At the pace of the last 7 days, the cap is reached on "
            "30 Mar 2026; March 2026 would cost about $26.50 without a cap.",
        ),
        (
            *("30", "5", "7"),
            "$12.00 of $30.00 spent (40%) At the pace of the last 7 days, March 2026 would cost "
            "about $26.50 in total, within the cap.",
        ),
        (
            *("12", "5", "7"),
            "$12.00 of $12.00 spent (100%) The monthly cost cap of $12.00 is reached. Nothing "
            "starts automatically before 1 Apr 2026.",
        ),
        (
            *("0", "0", "0"),
            "$0.00 of $0.00 spent The monthly cost cap of $0.00 is reached. Nothing starts "
            "automatically before 1 Apr 2026.",
        ),
        (
            *("30", "5", "0"),
            "$5.00 of $30.00 spent (17%) The last 7 days cost nothing, so no further cost is "
            "expected this month.",
        ),
        (
            *(None, "5", "7"),
            "$12.00 spent At the pace of the last 7 days, March 2026 would cost about $26.50 in "
            "total. The forecast is",
        ),
    ],
)
def test_the_month_so_far_is_compared_with_the_cap(
    dashboard: Browser,
    capped: Callable[..., None],
    cap: str | None,
    before: str,
    lately: str,
    words: str,
) -> None:
    capped(cap, before, lately)

    page = said(dashboard).replace("spent forecast monthly cost cap ", "")

    assert f"March 2026 so far {words}" in page


def test_does_not_compare_an_unknown_cost_with_the_cap(
    dashboard: Browser, capped: Callable[..., None]
) -> None:
    capped("5", "0", "0", unpriced_calls=1)

    assert "Cost unknown ; the cap is $5.00" in said(dashboard)


def test_costs_that_are_unknown_are_not_forecast(
    dashboard: Browser, capped: Callable[..., None]
) -> None:
    capped(None, "0", "0", unpriced_calls=1)

    assert (
        "March 2026 so far Cost unknown The cost of some runs is unknown: set prices in "
        "REFINE_PRICES to get a forecast."
    ) in said(dashboard)


@pytest.mark.parametrize(
    ("cap", "before", "lately", "drawn"),
    [
        ("25", "5", "7", ("warn", "100.0", "45.283", "94.34")),
        ("53", "5", "7", ("ok", "50.0", "22.642", None)),
        ("15", "12", "0", ("warn", "80.0", "80.0", None)),
        ("6", "5", "7", ("bad", "100.0", "100.0", "50.0")),
        (None, "5", "7", ("ok", "100.0", "45.283", None)),
        ("0", "0", "0", ("bad", "0", "0", None)),
    ],
)
def test_the_bar_shows_what_was_spent_the_forecast_and_the_cap(
    dashboard: Browser,
    capped: Callable[..., None],
    cap: str | None,
    before: str,
    lately: str,
    drawn: tuple[str, str, str, str | None],
) -> None:
    capped(cap, before, lately)

    bar = dashboard.get("/usage").text.partition('class="spent"')[2].partition("</svg>")[0]

    found = re.search(
        r'class="bar (\w+)".*expected" width="([^"]+)".*fill" width="([^"]+)"', bar, re.DOTALL
    )
    mark = re.search(r'class="cap" d="M(\S+) 0V8"', bar)
    assert found is not None
    assert (*found.groups(), mark and mark[1]) == drawn


def test_the_cap_is_reached_on_a_day_of_the_accounts_clock(
    signed_in: SignedIn, admin: User, account: Account, capped: Callable[..., None]
) -> None:
    account.time_zone = "Pacific/Kiritimati"  # 14 hours ahead
    capped("19", "5", "7")

    # a week from now it is reached, on 24 March at noon in UTC
    assert "the cap is reached on 25 Mar 2026" in said(signed_in(admin))


def test_other_months_say_nothing_of_the_cap(
    dashboard: Browser, capped: Callable[..., None]
) -> None:
    capped("25", "5", "7")

    assert "so far" not in said(dashboard, "/usage?month=2026-02")
    assert "so far" in said(dashboard, "/usage?by=month&month=2026-02")


def test_a_site_admin_sees_the_accounts_nearest_to_their_caps(
    signed_in: SignedIn, capped: Callable[..., None]
) -> None:
    capped("25", "5", "7")
    uncapped = factories.account(name="Uncapped")
    spent(factories.agent("one", account=uncapped), "99")
    browser = signed_in(person(site_admin=True))

    words = said(browser)

    assert "Own account : $12.00 of $25.00 spent (48%)" in words
    assert "Uncapped :" not in words
    assert "/usage?account=own" in links_of(browser.get("/usage").text)
