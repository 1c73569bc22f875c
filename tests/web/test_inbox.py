"""A user's mail: what they are told, what was sent; invitations and forgotten passwords by mail."""

import dataclasses
import re
from datetime import timedelta

import pytest

from refine import clock
from refine.extensions import db
from refine.models import AuditLog, Invitation, Mail, User
from tests import factories
from tests.web.conftest import PASSWORD, Browser, browser_of, said


@pytest.fixture
def mail_is_set(app, monkeypatch) -> None:
    usual = app.extensions["refine.settings"]
    changed = dataclasses.replace(
        usual, mail_url="smtp://127.0.0.1:9", mail_from="refine@example.org"
    )
    monkeypatch.setitem(app.extensions, "refine.settings", changed)


def mails() -> list[Mail]:
    db.session.rollback()
    return list(db.session.scalars(db.select(Mail).order_by(Mail.id)))


# -- choices and what was sent ---------------------------------------------------------------------


def choices(page: str) -> dict[str, bool]:
    found = re.findall(r'name="told_of" value="([^"]+)"( checked)?', page)
    return {name: bool(checked) for name, checked in found}


def test_an_admin_is_told_what_needs_somebody_until_they_choose(dashboard: Browser, admin, account):
    offered = choices(dashboard.get("/inbox").text)
    assert [name for name, checked in offered.items() if checked] == [
        *("agent.failed", "agent.rolled_back", "agent.stuck"),
        *("account.over_cap", "token.ending"),
    ]
    assert "clock.silent" not in offered

    chosen = {"told_of": ["letter", "access.granted", "clock.silent", "nonsense"]}
    assert dashboard.submit("/inbox", chosen).status_code == 303
    db.session.refresh(admin)
    assert admin.told_of == ["access.granted", "letter"]
    offered = choices(dashboard.get("/inbox").text)
    assert [name for name, checked in offered.items() if checked] == ["access.granted", "letter"]
    record = db.session.scalars(db.select(AuditLog).where(AuditLog.action == "user_updated")).one()
    assert record.data["told_of"] == ["access.granted", "letter"]


def test_viewers_are_told_nothing_unless_they_choose(signed_in, account):
    viewer = factories.user(account=account, role="viewer")
    db.session.commit()
    browser = signed_in(viewer)

    offered = choices(browser.get("/inbox").text)
    assert set(offered.values()) == {False}
    assert set(offered) & {"token.ending", "access.asked", "clock.silent"} == set()
    browser.submit("/inbox", {"told_of": ["agent.failed"]})
    assert choices(browser.get("/inbox").text)["agent.failed"]


def test_site_admins_are_told_of_the_installation(site_admins):
    offered = choices(site_admins.get("/inbox").text)

    assert [name for name in offered if offered[name]][-3:] == [
        *("verification.failed", "clock.silent", "workers.silent"),
    ]


def sent(user: User, subject: str, status: str, *, is_final: bool = False) -> None:
    about = {"event_id": subject, "account_id": user.account_id, "kind": "letter"}
    Mail.queue([user.id], clock.now(), subject=subject, text=f"of {subject}", **about)
    mail = db.session.scalars(db.select(Mail).where(Mail.subject == subject)).one()
    mail.note(clock.now(), status, is_final=is_final)
    db.session.commit()


def test_the_inbox_shows_ones_own_mail_and_whether_it_arrived(dashboard: Browser, admin):
    sent(admin, "one", "250")
    sent(admin, "two", "451")
    sent(factories.user(account=admin.account), "three", "250")
    page = said(dashboard, "/inbox")

    assert "one of one" in page
    assert "waiting 451" in page
    assert "three" not in page
    assert "REFINE_MAIL_URL" in page


def test_operations_show_mail_that_did_not_arrive(mail_is_set, dashboard: Browser, admin):
    sent(admin, "bounced", "550", is_final=True)
    sent(factories.user(), "elsewhere", "550", is_final=True)
    sent(admin, "arrived", "250")
    page = said(dashboard, "/ops")

    assert f"{admin.email} bounced" in page
    assert "given up 550" in page
    assert "elsewhere" not in page
    assert "arrived" not in page.replace("has not arrived", "")


# -- invitations -----------------------------------------------------------------------------------


def test_an_invitation_goes_by_mail_and_its_link_is_not_shown(mail_is_set, dashboard, admin):
    answer = dashboard.submit("/users", {"email": "new@example.org", "role": "viewer"})

    assert answer.status_code == 303
    page = said(dashboard, "/users")
    assert "A link is on its way to new@example.org" in page
    assert "/invitations/" not in page
    (mail,) = mails()
    invited = db.session.scalars(db.select(User).where(User.email == "new@example.org")).one()
    assert (mail.kind, mail.user_id, mail.issued_by_id) == ("invitation", invited.id, admin.id)


def test_a_new_password_link_goes_by_mail_too(mail_is_set, dashboard, account):
    other = factories.user(account=account)
    db.session.commit()
    answer = dashboard.submit(f"/users/{other.id}/invitation")

    assert answer.status_code == 303
    assert [each.user_id for each in mails()] == [other.id]


# -- forgotten passwords ---------------------------------------------------------------------------


def test_the_way_is_there_only_where_mail_is_sent(client):
    assert "forgot" not in client.get("/sign-in").text
    assert client.get("/forgotten").status_code == 404
    assert client.submit("/forgotten", {"email": "a@example.org"}).status_code == 404
    assert mails() == []


def test_the_answer_is_the_same_whoever_has_the_address(mail_is_set, client, admin):
    db.session.commit()
    assert "I forgot my password" in said(client, "/sign-in")
    answers = [
        client.submit("/forgotten", {"email": address}).text.replace(address, "…")
        for address in (admin.email, "nobody@example.org")
    ]

    assert answers[0] == answers[1]
    assert "on its way" in answers[0]
    # neither was looked up: their rows are alike
    first, second = mails()
    assert (first.user_id, first.account_id) == (second.user_id, second.account_id) == (None, None)


def test_one_address_gets_one_link_an_hour_and_a_network_is_counted(mail_is_set, client):
    at = clock.now()
    for _ in range(10):
        assert client.submit("/forgotten", {"email": "ada@example.org"}).status_code == 200
    assert client.submit("/forgotten", {"email": "ada@example.org"}).status_code == 429

    assert len(mails()) <= 1 + (clock.now().hour != at.hour)
    assert client.submit("/forgotten", {"email": "not an address"}).status_code == 422


def test_asking_for_a_link_locks_nobody_out(mail_is_set, app, client, admin):
    db.session.commit()
    for _ in range(11):
        client.submit("/forgotten", {"email": admin.email})

    assert browser_of(app).sign_in(admin.email, PASSWORD).status_code == 303


def test_a_password_set_through_a_mailed_link_bars_reading_for_a_day(mail_is_set, client, admin):
    secret = Invitation.issue(admin)
    db.session.commit()
    chosen = {"password": "another long password", "confirm_password": "another long password"}
    client.submit(f"/invitations/{secret}", chosen)
    db.session.refresh(admin)

    assert admin.password_linked_at is not None
    assert clock.now() - admin.password_linked_at < timedelta(minutes=1)
