"""Long lists, a page at a time: no row twice, none lost, forwards and backwards."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import get_args
from urllib.parse import urlencode

import pytest

from refine.extensions import db
from refine.models import Agent, ApiToken, RefinementSession, User
from refine.models.agent_list import Order
from refine.web import access, agents as agents_page, audit as audit_page, sessions as sessions_page
from refine.web.lists import PAGE_ROWS
from tests import factories
from tests.web.conftest import Browser, SignedIn, person

ROWS = 123
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def dashboard(admin: User, signed_in: SignedIn) -> Browser:
    """A site admin's, who sees every list."""
    admin.site_admin = True
    return signed_in(admin)


def agents(admin: User) -> tuple[str, str]:
    """Some alike in name, some in tokens, with whatever a name may hold."""
    names = ["same", "Größe~x:1", ">s:<~", "100 %_\\", "a&b=c", "名前", "'\"", "Same"]
    for number in range(ROWS):
        agent = factories.agent(account=admin.account, name=names[number % len(names)])
        for _ in range(number % 3):
            factories.memory(agent, "equally long")
        if number % 2:
            declined(agent, NOON)
    return "/agents", r'scope="row"><a href="/agents/(\d+)"'


def declined(agent: Agent, at: datetime) -> None:
    ended = {"status": "declined", "end_reason": "no", "created_at": at, "ended_at": at}
    db.session.add(
        RefinementSession(
            agent=agent, trigger="manual", model_id="test/model", threshold=Decimal("0.75"), **ended
        )
    )


def sessions(admin: User) -> tuple[str, str]:
    agent = factories.agent("one", account=admin.account)
    for number in range(ROWS):
        declined(agent, NOON + timedelta(seconds=number // 4))
    return "/sessions", r'<a href="/sessions/([0-9a-f-]{36})"'


def memories(admin: User) -> tuple[str, str]:
    agent = factories.agent(account=admin.account)
    for number in range(ROWS):
        factories.memory(agent, created_at=NOON + timedelta(microseconds=number // 5))
    return f"/agents/{agent.id}/ledger", r'scope="row"><a [^>]*>#(\d+)<'


def audit(admin: User) -> tuple[str, str]:
    for _ in range(ROWS):
        admin.account.record("account_created", at=NOON)
    return "/audit?action=account_created", r'<a href="/audit/(\d+)"'


def tokens(admin: User) -> tuple[str, str]:
    for _ in range(ROWS):
        ApiToken.mint(account=admin.account)
    return "/tokens", r"<code>([^<]+)…</code>"


def users(admin: User) -> tuple[str, str]:
    for _ in range(ROWS):
        person(account=admin.account)
    return "/users", r'scope="row">([^<]+@[^<]+)</th>'


def accounts(admin: User) -> tuple[str, str]:
    for _ in range(ROWS):
        factories.account()
    return "/accounts", r'scope="row">[^<]+</th>\s*<td[^>]*>([^<]+)</td>'


def walked(browser: Browser, url: str | None, row: str, direction: str) -> list[list[str]]:
    """The rows of each page, from this one on; and the address of the last."""
    pages = []
    while url is not None:
        text = browser.get(url).text
        pages.append(re.findall(row, text.partition("<main")[2]))
        following = re.search(rf'rel="{direction}" href="([^"]+)"', text)
        last, url = url, unescape(following[1]) if following else None
    pages.append([last])
    return pages


@pytest.mark.parametrize("fill", [sessions, memories, audit, tokens, users, accounts])
def test_a_list_can_be_paged_to_its_end_and_back(dashboard, admin, fill):
    url, row = fill(admin)
    db.session.commit()

    *forwards, (last,) = walked(dashboard, url, row, "next")
    *backwards, _ = walked(dashboard, last, row, "prev")

    rows = [each for page in forwards for each in page]
    assert len(set(rows)) == len(rows) >= ROWS
    assert [len(page) for page in forwards[:-1]] == [PAGE_ROWS] * (len(forwards) - 1)
    assert backwards[::-1] == forwards


def test_agents_can_be_paged_in_every_order(dashboard, admin):
    _, row = agents(admin)
    db.session.commit()

    for order in get_args(Order):
        *forwards, (last,) = walked(dashboard, f"/agents?sort={order}", row, "next")
        *backwards, _ = walked(dashboard, last, row, "prev")

        rows = [each for page in forwards for each in page]
        assert len(set(rows)) == len(rows) == ROWS
        assert backwards[::-1] == forwards


def test_invalid_bookmarks_are_refused(dashboard):
    lists = ["/agents?", "/agents?sort=share&", "/usage?", "/sessions?", "/audit?", "/users?"]
    bookmarks = [
        *("nonsense", ">", "<", ">i:x", ">i:1~i:2~i:3", ">dt:not a time", ">n:x", ">uuid:x"),
        *(">s:one~s:two", ">i:99999999999999999999", ">b:%%%", ">s:\x00~i:1", "~" * 500),
        *(">x~x", ">true", ">dx,i1", ">dNaN,i1"),
    ]

    answers = [
        dashboard.get(f"{path}{urlencode({'page': bookmark})}")
        for path in lists
        for bookmark in bookmarks
    ]

    assert {answer.status_code for answer in answers} <= {200, 400}
    refused = [answer for answer in answers if answer.status_code == 400]
    assert refused
    assert all("start from the first page." in answer.text for answer in refused)


@pytest.mark.parametrize(
    "filters", [access._FILTERS, agents_page.FILTERS, audit_page.FILTERS, sessions_page.FILTERS]
)
def test_no_filter_has_the_name_of_something_else_in_the_url(filters):
    names = [each.name for each in filters]

    assert len(set(names)) == len(names)
    assert not {"account", "page", "sort", "next", "listing", "name"}.intersection(names)
