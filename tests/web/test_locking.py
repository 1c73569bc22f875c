"""The page that locks somebody or an account out, and what it refuses."""

import pytest

from refine.extensions import db
from tests import factories, sql
from tests.web.conftest import HERE, person, records, words_of


@pytest.fixture
def colleague(admin):
    made = person(account=admin.account, email="colleague@example.org")
    db.session.commit()
    return made


def test_a_colleague_is_locked_out_and_let_in_again(dashboard, admin, colleague, signed_in):
    theirs = signed_in(colleague)
    page = words_of(dashboard.get(f"/users/{colleague.id}/lock").text)
    form = {"reason": "suspected_misuse"}

    locked = dashboard.submit(f"/users/{colleague.id}/lock", form, follow_redirects=True)

    assert "Lock colleague@example.org now?" in page
    said = words_of(locked.text)
    assert "Locked. Ended: 0 grants, 0 tokens, 0 links, 1 sign-ins." in said
    assert "✗ locked" in said
    assert "because misuse is suspected" in said
    assert theirs.get("/").headers["Location"].startswith("/sign-in")
    assert theirs.sign_in(colleague.email).status_code == 422
    (record,) = records("user_locked")
    assert (record.user_id, record.data["reason"]) == (admin.id, "suspected_misuse")
    assert record.data["from"] == HERE["from"]

    unlocked = dashboard.submit(f"/users/{colleague.id}/unlock", follow_redirects=True)

    assert "Unlocked." in words_of(unlocked.text)
    assert theirs.sign_in(colleague.email).status_code == 303


def test_somebody_locked_is_not_activated_by_another_form(dashboard, colleague):
    dashboard.submit(f"/users/{colleague.id}/lock", {"reason": "left"})

    for path, fields in (
        (f"/users/{colleague.id}", {"active": "1"}),
        (f"/users/{colleague.id}", {"role": "viewer"}),
        (f"/users/{colleague.id}/invitation", {}),
        (f"/users/{colleague.id}/lock", {"reason": "left"}),
    ):
        assert dashboard.submit(path, fields).status_code == 409, path
    db.session.expire_all()
    assert (colleague.active, colleague.role) == (False, "admin")


def test_a_lock_needs_a_reason_of_the_list_and_the_password(dashboard, colleague):
    dashboard.token()
    before = sql.snapshot()

    for reason in ("", "my own words"):
        answer = dashboard.submit(f"/users/{colleague.id}/lock", {"reason": reason})
        assert (answer.status_code, "must be one of" in answer.text) == (422, True)
    assert sql.snapshot() == before
    sql.rewrite("UPDATE sign_ins SET confirmed_at = confirmed_at - interval '15 minutes'")
    for path in (f"/users/{colleague.id}/lock", f"/users/{colleague.id}/unlock"):
        answer = dashboard.submit(path, {"reason": "left"})
        assert answer.headers["Location"].startswith("/profile/confirm"), path


def test_an_admin_cannot_lock_themselves_or_a_site_admin(dashboard, admin, account):
    above = person(account=account, site_admin=True)
    db.session.commit()

    mine = dashboard.submit(f"/users/{admin.id}/lock", {"reason": "left"})

    assert mine.status_code == 409
    assert "sign out everywhere instead" in mine.text
    assert dashboard.submit(f"/users/{above.id}/lock", {"reason": "left"}).status_code == 403


def test_a_site_admin_locks_an_account_with_its_tokens(site_admins, dashboard, account):
    factories.endpoint(account)
    db.session.commit()
    page = words_of(site_admins.get(f"/accounts/{account.id}/lock").text)
    form = {"reason": "incident", "tokens": "1"}

    locked = site_admins.submit(f"/accounts/{account.id}/lock", form, follow_redirects=True)

    assert "The account is paused" in page
    assert "1 sign-ins, 1 webhooks." in words_of(locked.text)
    assert dashboard.get("/").headers["Location"].startswith("/sign-in")
    again = site_admins.submit(f"/accounts/{account.id}/unlock", follow_redirects=True)
    assert "Unlocked." in words_of(again.text)
    twice = site_admins.submit(f"/accounts/{account.id}/unlock", follow_redirects=True)
    assert "It is not locked." in words_of(twice.text)
