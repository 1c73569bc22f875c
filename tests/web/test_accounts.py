"""Accounts, for those who run the platform."""

import pytest

from refine.extensions import db
from refine.models import Account, User
from tests import factories, sql
from tests.web.conftest import Browser, SignedIn, person, records, words_of


@pytest.fixture
def site_admin(admin: User) -> User:
    return person(site_admin=True)


@pytest.fixture
def dashboard(site_admin: User, signed_in: SignedIn) -> Browser:
    return signed_in(site_admin)


def test_adding_an_account_is_recorded_and_leads_to_its_users(
    dashboard: Browser, site_admin: User
) -> None:
    answer = dashboard.submit("/accounts", {"name": "New House", "slug": ""}, follow_redirects=True)

    db.session.rollback()
    account = Account.by_slug("new-house")
    assert answer.request.full_path == "/users?account=new-house"
    assert "New House was added. You can invite its first admin here." in words_of(answer.text)
    (record,) = records("account_created")
    assert (record.user_id, record.account_id) == (site_admin.id, account.id)


def test_invalid_accounts_are_explained_and_kept_in_the_form(dashboard: Browser) -> None:
    dashboard.token()
    before = sql.snapshot()

    for name, slug, problem, status in (
        ("", "", "slug needs letters", 422),
        (" ", "blank", "name", 422),
        ("名", "", "A slug needs letters a to z or digits", 422),
        ("Fine", "Not Fine", "slug must be lower-case letters", 422),
        ("Own account again", "own", "is taken; give another one", 409),
    ):
        answer = dashboard.submit("/accounts", {"name": name, "slug": slug})

        assert answer.status_code == status, (name, slug)
        assert problem.lower() in words_of(answer.text).lower()
        assert f'name="name" value="{name}"' in answer.text
        assert f'name="slug" value="{slug}"' in answer.text
    assert sql.snapshot() == before


def test_accounts_are_listed_with_agents_and_schedule(dashboard: Browser, admin: User) -> None:
    factories.agent(account=admin.account)
    factories.agent(account=admin.account)
    admin.account.paused = True
    db.session.commit()

    said = words_of(dashboard.get("/accounts").text)

    assert "Own account own 2 paused (UTC) – overview · agents · users" in said
