"""Saved views: the filters of lists by name, for each user; with forms that need no script."""

import re
from html import unescape
from typing import Any

import pytest

from refine.extensions import db
from refine.models import User
from refine.models.people.user import MAX_VIEWS
from tests import factories
from tests.web.conftest import Browser, SignedIn, person, records, words_of

FAILED = "/sessions?status=failed&trigger=weekly"


@pytest.fixture(autouse=True)
def one_session(admin: User) -> None:
    factories.ended(factories.agent(account=admin.account))
    db.session.commit()


def form(page: str, action: str) -> dict[str, str]:
    """The hidden fields of the form with that action."""
    found = re.search(rf'<form method="post" action="{action}".*?</form>', page, re.DOTALL)
    assert found is not None
    hidden = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', found[0])
    return {name: unescape(value) for name, value in hidden}


def save(browser: Browser, url: str, name: str) -> Any:
    fields = form(browser.get(url).text, "/views")
    return browser.submit("/views", {**fields, "name": name})


def views(browser: Browser, url: str) -> str:
    page = browser.get(url).text
    found = re.search(r'aria-label="Saved views".*?</nav>', page, re.DOTALL)
    return words_of(found[0]) if found else ""


def test_a_view_is_saved_shown_and_deleted(dashboard: Browser) -> None:
    answer = save(dashboard, f"{FAILED}&page=&live=0", "Monday's")

    assert (answer.status_code, answer.location) == (303, FAILED)
    page = dashboard.get(FAILED).text
    assert re.search(r'<a href="/sessions\?[^"]+" aria-current="page">Monday', page)
    assert "Delete this view" not in dashboard.get("/sessions").text
    assert "Monday's" in views(dashboard, "/sessions?status=failed")
    assert views(dashboard, "/agents") == ""

    dashboard.submit("/views/deleted", form(page, "/views/deleted"))

    assert views(dashboard, "/sessions") == ""


def test_views_are_the_users_own_and_leave_no_record(
    dashboard: Browser, admin: User, signed_in: SignedIn
) -> None:
    viewer = signed_in(person(account=admin.account, role="viewer"))
    before = len(records("user_signed_in"))

    save(viewer, "/agents?state=paused&sort=share", "Paused")

    assert "Paused" in views(viewer, "/agents")
    assert views(dashboard, "/agents") == ""
    assert len(records("user_signed_in")) == before
    db.session.expire_all()
    assert admin.is_genuine


def test_saving_under_the_same_name_replaces_the_view(dashboard: Browser, admin: User) -> None:
    save(dashboard, "/audit?kind=read", "Mine")
    save(dashboard, "/agents?q=a", "Mine")
    save(dashboard, "/audit?kind=access", "Mine")

    db.session.expire_all()
    assert {tuple(view) for view in admin.views} == {
        ("agents.listing", "Mine", "q=a"),
        ("audit.page", "Mine", "kind=access"),
    }


def test_only_so_many_are_saved(dashboard: Browser, admin: User) -> None:
    for number in range(MAX_VIEWS + 1):
        save(dashboard, f"/agents?q={number}", f"View {number}")

    db.session.expire_all()
    assert len(admin.views) == MAX_VIEWS
    assert "At most 20 views can be saved; delete one first." in dashboard.get("/agents").text


@pytest.mark.parametrize(
    "fields", [{}, {"listing": "agents.listing", "name": " "}, {"listing": "x", "name": "x"}]
)
def test_a_view_needs_a_list_and_a_name(dashboard: Browser, fields: dict[str, str]) -> None:
    assert dashboard.submit("/views", fields).status_code == 400


def test_a_site_admins_view_keeps_the_account(site_admins: Browser) -> None:
    factories.account(slug="one")
    db.session.commit()

    url = "/sessions?account=one&status=failed"

    assert save(site_admins, url, "Theirs").location == url
