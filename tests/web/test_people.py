"""Users and accounts, API tokens, and a user's own time zone."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from refine.extensions import db
from refine.models import Account, ApiToken, Invitation, User
from tests import factories, sql
from tests.commands import eventually
from tests.web.conftest import (
    HERE,
    actions_of,
    browser_of,
    links_of,
    person,
    records,
    words_of,
)

_SECRET_LINK = re.compile(r'value="http://localhost:8000(/invitations/[^"]+)"')


def link_in(page: str) -> str:
    """The path of the link that the page shows."""
    found = _SECRET_LINK.search(page)
    assert found is not None
    return found[1]


@pytest.fixture
def colleague(admin: User) -> User:
    made = person(account=admin.account, email="colleague@example.org", role="viewer")
    db.session.commit()
    return made


def test_an_invitation_is_recorded_and_its_link_works(dashboard, admin):
    answer = dashboard.submit("/users", {"email": " New@Example.org", "role": "viewer"})

    said = words_of(answer.text)
    assert "Send this link to new@example.org , who can use it to choose a password" in said
    assert "new@example.org viewer ◔ invited" in said
    page = browser_of(dashboard.application).get(link_in(answer.text))  # type: ignore[arg-type]
    assert "Choose a password for new@example.org" in words_of(page.text)
    (record,) = records("user_invited")
    assert (record.user_id, record.data) == (admin.id, {"role": "viewer", **HERE})


def test_invalid_invitations_are_explained_and_kept_in_the_form(dashboard, colleague):
    dashboard.token()
    before = sql.snapshot()

    for email, role, problem, status in (
        ("", "viewer", "E-mail must not be empty", 422),
        ("no address", "viewer", "E-mail must be an address", 422),
        ("ad\u200ba@example.org", "viewer", "E-mail must not contain invisible characters", 422),
        ("COLLEAGUE@example.org", "viewer", "is already a user", 409),
        ("new@example.org", "owner", "Role must be one of admin, viewer", 422),
    ):
        answer = dashboard.submit("/users", {"email": email, "role": role})

        assert answer.status_code == status, (email, role)
        assert problem.lower() in words_of(answer.text).lower()
        assert f'name="email" value="{email}"' in answer.text
    assert sql.snapshot() == before


def test_inviting_does_not_tell_who_is_in_another_account(dashboard, app):
    person(email="taken@example.org")
    User.invite(person().account, "asked@example.org", role="viewer", by=person())
    db.session.commit()

    pages = {}
    for name in ("taken", "asked", "free1"):
        invited = dashboard.submit("/users", {"email": f"{name}@example.org", "role": "viewer"})
        opened = browser_of(app).get(link_in(invited.text))
        again = dashboard.submit("/users", {"email": f"{name}@example.org", "role": "viewer"})
        user_id = sql.value(f"SELECT max(id) FROM users WHERE email = '{name}@example.org'")
        linked = dashboard.submit(f"/users/{user_id}/invitation")
        statuses = [answer.status_code for answer in (invited, opened, again, linked)]
        text = words_of(invited.text) + words_of(opened.text) + words_of(again.text)
        pages[name] = statuses, text.lower().replace(name, "…")
        sql.run("DELETE FROM invitations", f"DELETE FROM users WHERE id = {user_id}")

    assert pages["taken"] == pages["asked"] == pages["free1"]
    assert pages["taken"][0] == [200, 200, 409, 200]


def test_an_address_joins_one_account(dashboard, app):
    theirs = person(email="taken@example.org")
    db.session.commit()
    page = dashboard.submit("/users", {"email": "taken@example.org", "role": "admin"})
    link, browser = link_in(page.text), browser_of(app)
    chosen = {"password": "my own battery", "confirm_password": "my own battery"}

    refused = browser.submit(link, chosen)

    assert refused.status_code == 404
    assert "This link is no longer valid" in refused.text
    assert words_of(refused.text) == words_of(browser.get("/invitations/unknown").text)
    assert "taken@example.org admin ◔ invited" in words_of(dashboard.get("/users").text)
    assert browser.sign_in("taken@example.org", "my own battery").status_code == 422
    assert browser.sign_in("taken@example.org").status_code == 303
    (record,) = records("user_join_refused")
    assert (record.account_id, record.auditable_type) == (None, "User")
    assert record.auditable_id != str(theirs.id)


def test_a_role_change_takes_effect_at_once_and_is_recorded(dashboard, admin, colleague, signed_in):
    theirs = signed_in(colleague)
    before = theirs.submit("/schedule", {"paused": "1"}).status_code

    answer = dashboard.submit(f"/users/{colleague.id}", {"role": "admin"}, follow_redirects=True)
    theirs = signed_in(colleague)

    assert "colleague@example.org: admin, active." in words_of(answer.text)
    assert (before, theirs.submit("/schedule", {"paused": "1"}).status_code) == (403, 303)
    (record,) = records("user_updated")
    assert (record.user_id, record.auditable_id) == (admin.id, str(colleague.id))
    assert record.data == {"role": "admin", "active": True, **HERE}


@pytest.mark.parametrize("taken", [{"active": "0"}, {"role": "viewer"}])
def test_access_stays_ended_when_its_user_is_an_active_admin_again(
    dashboard, admin, colleague, taken
):
    colleague.role = "admin"
    grant = factories.live_grant(factories.agent(account=admin.account), colleague)
    invited = person(account=admin.account)
    links = [Invitation.issue(invited, by=colleague)]
    if "active" in taken:
        links.append(Invitation.issue(colleague, by=admin))
    db.session.commit()

    for fields in (taken, {"active": "1", "role": "admin"}):
        dashboard.submit(f"/users/{colleague.id}", fields)

    db.session.expire_all()
    assert (colleague.active, colleague.role) == (True, "admin")
    assert not grant.permits_reading
    assert (grant.end_reason, grant.ended_by_id) == ("no_longer_allowed", admin.id)
    assert [Invitation.by_secret(link) for link in links] == [None] * len(links)


def test_an_account_admin_cannot_change_a_site_admin(dashboard, admin):
    site_admin = person(account=admin.account, site_admin=True)
    db.session.commit()
    dashboard.token()
    before = sql.without_counts()

    for path in (f"/users/{site_admin.id}", f"/users/{site_admin.id}/invitation"):
        answer = dashboard.submit(path, {"active": "0"})

        assert answer.status_code == 403
        assert "Only a site admin can change a site admin" in words_of(answer.text)
    assert sql.without_counts() == before
    assert f"/users/{site_admin.id}" not in actions_of(dashboard.get("/users").text)


@pytest.mark.parametrize("fields", [{"active": "0"}, {"role": "viewer"}])
def test_two_admins_who_take_rights_from_each_other_at_once_leave_one_admin(
    dashboard, admin, signed_in, fields
):
    other = person(account=admin.account)
    theirs = signed_in(other)
    whole_chain = f"SELECT FROM chain_heads WHERE account_id = {admin.account_id} FOR UPDATE"

    with db.engine.connect() as holding, ThreadPoolExecutor() as pool:
        holding.exec_driver_sql(whole_chain)
        sent = [
            pool.submit(dashboard.submit, f"/users/{other.id}", fields),
            pool.submit(theirs.submit, f"/users/{admin.id}", fields),
        ]
        eventually(lambda: sql.waiting() == len(sent))
        holding.rollback()
        answers = [each.result(timeout=20) for each in sent]

    able = sql.value("SELECT count(*) FROM users WHERE active AND role = 'admin'")
    assert sorted(answer.status_code for answer in answers) == [303, 409]
    assert (able, len(records("user_updated"))) == (1, 1)


def test_users_cannot_change_themselves(dashboard, admin):
    page = dashboard.get("/users").text

    answers = [
        dashboard.submit(f"/users/{admin.id}", {"role": "viewer"}, follow_redirects=True),
        dashboard.submit(f"/users/{admin.id}", {"active": "0"}, follow_redirects=True),
    ]

    db.session.refresh(admin)
    assert all("You cannot change your own role" in words_of(answer.text) for answer in answers)
    assert (admin.role, admin.active) == ("admin", True)
    assert f"/users/{admin.id}" not in actions_of(page)


@pytest.fixture
def token(admin: User) -> ApiToken:
    made, _ = ApiToken.mint(account=admin.account)
    db.session.commit()
    return made


def test_revoking_a_token_is_final_and_recorded(dashboard, admin, token):
    answer = dashboard.submit(f"/tokens/{token.id}/revoke", follow_redirects=True)
    dashboard.submit(f"/tokens/{token.id}/revoke")

    db.session.refresh(token)
    assert not token.is_valid
    assert f"Token {token.hint}… revoked" in words_of(answer.text)
    assert f"/tokens/{token.id}/revoke" not in links_of(answer.text)
    assert [record.user_id for record in records("token_revoked")] == [admin.id]


def test_revoking_a_platform_token_ends_what_it_minted(dashboard, admin, token):
    minted, _ = token.mint_for(factories.agent(account=admin.account), expires_at=None)
    db.session.commit()
    assert f"{token.hint}… {minted.hint}…" not in words_of(dashboard.get("/tokens").text)

    answer = dashboard.submit(f"/tokens/{token.id}/revoke", follow_redirects=True)

    assert f"{token.hint}… revoked, and every token that it created." in words_of(answer.text)
    db.session.refresh(minted)
    assert not minted.is_valid


def test_adding_an_account_is_recorded_and_leads_to_its_users(signed_in, admin):
    site_admin = person(site_admin=True)
    dashboard = signed_in(site_admin)

    answer = dashboard.submit("/accounts", {"name": "New House", "slug": ""}, follow_redirects=True)

    db.session.rollback()
    account = Account.by_slug("new-house")
    assert answer.request.full_path == "/users?account=new-house"
    assert "New House was added. You can invite its first admin here." in words_of(answer.text)
    (record,) = records("account_created")
    assert (record.user_id, record.account_id) == (site_admin.id, account.id)


def test_invalid_accounts_are_explained_and_kept_in_the_form(site_admins, admin):
    db.session.commit()
    before = sql.snapshot()

    for name, slug, problem, status in (
        ("", "", "slug needs letters", 422),
        (" ", "blank", "name", 422),
        ("名", "", "A slug needs letters a to z or digits", 422),
        ("Fine", "Not Fine", "slug must be lower-case letters", 422),
        ("Own account again", "own", "is taken; give another one", 409),
    ):
        answer = site_admins.submit("/accounts", {"name": name, "slug": slug})

        assert answer.status_code == status, (name, slug)
        assert problem.lower() in words_of(answer.text).lower()
        assert f'name="name" value="{name}"' in answer.text
        assert f'name="slug" value="{slug}"' in answer.text
    assert sql.snapshot() == before
