"""The usage page: by agent, model and month and against the cost cap."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine

from refine.extensions import db
from refine.models import Account, Agent
from tests import factories
from tests.web.conftest import Browser, links_of, said, words_of

NOW = datetime(2026, 3, 17, 12, tzinfo=UTC)  # fourteen days and a half before the month ends
LAST_MONTH = NOW - timedelta(days=20)


@pytest.fixture(autouse=True)
def in_march() -> Iterator[None]:
    with time_machine.travel(NOW, tick=True):
        yield


def spent(agent: Agent, usd: str, at: datetime | None = None, **fields: object) -> None:
    """A session that cost so much."""
    at = at or NOW - timedelta(minutes=1)
    factories.ended(agent, at=at, cost_usd=Decimal(usd), **fields)
    db.session.commit()


def rows(browser: Browser, path: str = "/usage") -> list[str]:
    """What the rows of the table say."""
    body = browser.get(path).text.partition("<tbody")[2].partition("</tbody>")[0]
    return [words_of(row) for row in re.findall("<tr[^>]*>.*?</tr>", body, flags=re.DOTALL)]


# -- by agent, model and month ---------------------------------------------------------------------


@pytest.fixture
def busy(account: Account) -> dict[str, Agent]:
    """Two agents of this account and one of another, with something in both months."""
    ada = factories.agent("one", account=account, name="Ada", model_id="test/large")
    bo = factories.agent("one", account=account, name="bo", model_id="test/small")
    eve = factories.agent("one", account=factories.account(name="Elsewhere"), name="Nightjar")
    spent(ada, "1", prompt_tokens=2000, cached_tokens=500, completion_tokens=30)
    spent(bo, "3", prompt_tokens=1000, saved_tokens=12)
    spent(bo, "0", at=LAST_MONTH, saved_tokens=90, undone_at=NOW)
    spent(bo, "0.5", at=LAST_MONTH)
    factories.ended_task(ada, "reflection", at=NOW - timedelta(hours=2), prompt_tokens=7)
    factories.ended_task(ada, "extraction", at=NOW - timedelta(hours=3))
    spent(eve, "9")
    return {"ada": ada, "bo": bo, "eve": eve}


def test_agents_of_this_month_are_listed_with_all_their_figures(dashboard, busy):
    assert rows(dashboard) == [
        "bo $3.00 12 1 0 0 1,000 0 0 75%",
        "Ada $1.00 0 1 1 1 2,007 500 30 25%",
    ]
    words = said(dashboard, "/usage")
    assert "What the agents of Own account used in March 2026" in words
    assert "Cost $4.00 Tokens saved 12 Sessions 2 Reflections 1 Conversations 1" in words
    assert "Prompt tokens 3,007 Cached 500 Completion tokens 30" in words
    assert f"/agents/{busy['bo'].id}" in links_of(dashboard.get("/usage").text)


# -- whose -----------------------------------------------------------------------------------------


def test_a_site_admin_sees_all_accounts_or_one(
    site_admins: Browser, busy: dict[str, Agent]
) -> None:
    assert [row.split(" $")[0] for row in rows(site_admins)] == [
        "Nightjar Elsewhere",
        "bo Own account",
        "Ada Own account",
    ]
    assert "What all agents used" in said(site_admins, "/usage")
    assert "in the time zone of its account" in said(site_admins, "/usage")
    assert [row.split()[0] for row in rows(site_admins, "/usage?account=own")] == ["bo", "Ada"]


def test_a_session_that_still_runs_has_saved_nothing_yet(dashboard, account):
    factories.session(factories.agent("one", account=account)).saved_tokens = 12
    db.session.commit()

    assert "Tokens saved 0 Sessions 1" in said(dashboard, "/usage")


def test_a_model_that_is_named_like_an_address_is_hidden(dashboard, account):
    spent(factories.agent("one", account=account), "1", model_id="ada@example.org")

    page = dashboard.get("/usage?by=model").text
    assert "hidden: it looks like an address" in page
    assert "ada@" not in page


# -- against the cap -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "usd", "words"),
    [
        ("25", "12", "Spent: $12.00 ; monthly cost cap: $25.00 (48%)"),
        (
            *("0", "0"),
            "Spent: $0.00 ; monthly cost cap: $0.00 (0%) The monthly cost cap of $0.00 is reached. "
            "Nothing starts automatically before 1 Apr 2026.",
        ),
        (None, "12", "Spent: $12.00"),
    ],
)
def test_the_month_so_far_is_compared_with_the_cap(dashboard, account, cap, usd, words):
    account.monthly_cost_cap_usd = None if cap is None else Decimal(cap)
    spent(factories.agent("one", account=account), usd)

    assert said(dashboard, "/usage").partition("March 2026 so far ")[2].startswith(words)
