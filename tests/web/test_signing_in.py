"""Signing in and out, what ends a sign-in, and the links by which people join."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import time_machine
from flask import Flask
from werkzeug.test import TestResponse

from refine.extensions import db
from refine.models import Invitation, PasswordGuess, SignIn, User
from refine.models.people.sign_in import MAX_GUESSES
from tests import factories, sql
from tests.commands import eventually
from tests.factories import PASSWORD
from tests.web.conftest import HERE, Browser, browser_of, person, records, words_of

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
WRONG = "Incorrect e-mail or password."


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    """Time that goes on by itself, and can be moved."""
    with time_machine.travel(NOW, tick=True) as traveller:
        yield traveller


@pytest.fixture
def ada(app: Flask) -> User:
    user = person(email="ada@example.org")
    db.session.commit()
    return user


def copy_of(browser: Browser, app: Flask) -> Browser:
    """Another browser with the same cookie."""
    cookie = browser.get_cookie("session")
    assert cookie is not None
    copied = browser_of(app)
    copied.set_cookie("session", cookie.value)
    return copied


def is_signed_in(browser: Browser) -> bool:
    return browser.get("/profile").status_code == 200


# -- signing in ------------------------------------------------------------------------------------


def test_the_right_password_leads_to_the_overview(ada, client):
    answer = client.sign_in("ada@example.org")

    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert is_signed_in(client)


def test_the_answer_does_not_reveal_who_has_an_account(client):
    person(email="ada@example.org")
    person(email="gone@example.org", active=False)
    person(email="invited@example.org").password_hash = None
    db.session.commit()
    client.token()

    tried = [("ada", "wrong battery"), ("nobody", PASSWORD), ("gone", PASSWORD)]
    tried += [("invited", PASSWORD), ("invited", "")]
    answers = [client.sign_in(f"{name}@example.org", password) for name, password in tried]

    assert [answer.status_code for answer in answers] == [422] * 5
    assert len({words_of(answer.text) for answer in answers}) == 1
    assert WRONG in answers[0].text
    assert not is_signed_in(client)


def test_a_user_promoted_by_sql_is_signed_out(admin, signed_in):
    viewer = factories.user(account=admin.account, role="viewer")
    db.session.commit()
    browser, role = signed_in(viewer), "UPDATE users SET role = '{}' WHERE email = '{}'"
    sql.run("UPDATE sign_ins SET last_seen_at = last_seen_at - interval '2 minutes'")

    # the use of the sign-in is noted, and committed, once the user was found to be genuine
    with sql.just_before("UPDATE sign_ins", role.format("admin", viewer.email)):
        browser.submit("/users", {"email": "puppet@example.org", "role": "admin"})
    sql.run(role.format("viewer", viewer.email))

    assert User.by_email("puppet@example.org") is None


# -- where it leads --------------------------------------------------------------------------------


def test_signing_in_leads_to_the_requested_page(ada, client):
    asked = client.get("/audit?action=user_signed_in&since=2026-01-01")
    form = client.get(asked.headers["Location"])

    answer = client.sign_in("ada@example.org", next="/audit?action=user_signed_in&since=2026-01-01")

    assert 'name="next" value="/audit?action=user_signed_in&amp;since=2026-01-01"' in form.text
    assert answer.headers["Location"] == "/audit?action=user_signed_in&since=2026-01-01"


def test_signing_in_never_redirects_to_another_site(ada, client):
    for elsewhere in (
        *("//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example"),
        *("https://evil.example/", "https:evil.example", "javascript:alert(1)"),
        *("/\t/evil.example", "/\n/evil.example", "/\t\\evil.example", " //evil.example"),
        *("/\r\nX: y", "evil", ""),
        *("//[", "https://[evil", "//evil\u2100.example"),  # no URL can be read in these
    ):
        answer = client.sign_in("ada@example.org", next=elsewhere)

        assert (answer.status_code, answer.headers["Location"]) == (303, "/"), elsewhere


def test_a_signed_out_post_redirects_to_the_form_without_a_target(client):
    answer = client.submit("/schedule", {"paused": "1"})

    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in")


def test_a_page_that_refreshes_itself_leads_to_the_sign_in_and_back(client):
    page = "/sessions?status=running"

    answer = client.get(page, headers={"HX-Request": "true", "HX-Current-URL": page})

    assert answer.headers["HX-Redirect"] == "/sign-in?next=/sessions?status%3Drunning"


# -- too many guesses ------------------------------------------------------------------------------


LOCALHOST = "127.0.0.1"  # where the browsers of these tests are


def guessed(number: int, *, email: str = "ada@example.org", address: str = LOCALHOST) -> None:
    """So many wrong passwords until now."""
    for each in range(number):
        PasswordGuess(email.format(each), address).count()
    db.session.commit()


def test_ten_wrong_passwords_are_too_many(ada, client):
    answers = [client.sign_in("ada@example.org", "wrong battery") for _ in range(10)]

    refused = client.sign_in("ADA@example.org")

    assert {answer.status_code for answer in answers} == {422}
    assert refused.status_code == 429
    assert 890 <= int(refused.headers["Retry-After"]) <= 900
    assert "Too many wrong passwords; try again in 15 minutes." in refused.text
    assert not is_signed_in(client)


def test_parallel_guesses_all_count(ada, app):
    browsers = [browser_of(app) for _ in range(16)]
    for browser in browsers:
        browser.token()

    with ThreadPoolExecutor(16) as pool:
        answers = list(
            pool.map(lambda browser: browser.sign_in("ada@example.org", "wrong battery"), browsers)
        )

    statuses = Counter(answer.status_code for answer in answers)
    assert statuses == {422: MAX_GUESSES, 429: 6}


def test_forwarded_addresses_count_only_behind_so_many_proxies(client, with_settings):
    behind_two = browser_of(with_settings(REFINE_PROXIES="2"))
    guessed(MAX_GUESSES, address="192.0.2.7")

    def status(browser: Browser, forwarded: str) -> int:
        headers = {"X-Forwarded-For": forwarded}
        form = {"csrf_token": browser.token(), "email": "ada@example.org", "password": "wrong"}
        return browser.post("/sign-in", data=form, headers=headers).status_code

    assert status(behind_two, "192.0.2.7, 10.0.0.1") == 429
    assert status(behind_two, "198.51.100.1, 192.0.2.7, 10.0.0.1") == 429, "a client may lie"
    assert status(behind_two, "192.0.2.7, 192.0.2.8, 10.0.0.1") == 422
    assert status(client, "192.0.2.7") == 422


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ("192.0.2.7:4711", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:db8::7]:4711", "2001:db8::7"),
        ("unknown", "unknown"),
    ],
)
def test_the_address_of_a_client_is_recorded_without_its_port(ada, with_settings, given, counted):
    browser = browser_of(with_settings(REFINE_PROXIES="1"))
    form = {"csrf_token": browser.token(), "email": "ada@example.org", "password": "wrong battery"}

    browser.post("/sign-in", data=form, headers={"X-Forwarded-For": given})

    assert [each.data["from"]["address"] for each in records("user_sign_in_failed")] == [counted]


# -- what ends it ----------------------------------------------------------------------------------


def test_signing_out_ends_the_sign_in_on_the_server(dashboard, app):
    copied = copy_of(dashboard, app)
    assert is_signed_in(copied)

    answer = dashboard.submit("/sign-out")

    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in")
    assert answer.headers["Clear-Site-Data"] == '"cache"'
    assert not is_signed_in(dashboard)
    assert not is_signed_in(copied)


def chosen(password: str) -> dict[str, str]:
    return {"password": password, "confirm_password": password}


def changed_to(password: str, **fields: str) -> dict[str, str]:
    return {"current_password": PASSWORD, **chosen(password), **fields}


def test_a_new_password_signs_out_other_browsers(admin, dashboard, signed_in):
    other = signed_in(admin)

    answer = dashboard.submit("/profile/password", changed_to("another battery"))

    assert answer.status_code == 303
    assert is_signed_in(dashboard)
    assert not is_signed_in(other)
    assert other.sign_in(admin.email).status_code == 422
    assert other.sign_in(admin.email, "another battery").status_code == 303


def test_an_invalid_password_change_changes_nothing(admin, dashboard):
    before = admin.password_hash

    for fields, problem in (
        (changed_to("another battery", current_password="wrong battery"), "The current password"),
        (changed_to("another battery", confirm_password="another batterie"), "do not match"),
        (changed_to("short"), "10 to 1,000 characters"),
        ({}, "The current password is wrong"),
    ):
        answer = dashboard.submit("/profile/password", fields)

        assert answer.status_code == 422
        assert problem in words_of(answer.text)
        assert "battery" not in answer.text
    db.session.refresh(admin)
    assert admin.password_hash == before


# -- records ---------------------------------------------------------------------------------------


def test_records_say_from_where_a_user_acted(ada, client):
    somewhere = {
        "environ_overrides": {"REMOTE_ADDR": "192.0.2.7"},
        "headers": {"User-Agent": "Mozilla/5.0 \t (Bent)" + "x" * 300},
    }
    form = {"csrf_token": client.token(), "email": "ada@example.org"}
    client.post("/sign-in", data={**form, "password": "wrong battery"}, **somewhere)
    client.post("/sign-in", data={**form, "email": "nobody", "password": "x"}, **somewhere)
    client.post("/sign-in", data={**form, "password": PASSWORD}, **somewhere)
    client.forget_token()
    client.submit("/schedule", {"paused": "1"}, **somewhere)

    for action, number in (
        *(("user_sign_in_failed", 2), ("user_signed_in", 1)),
        ("account_settings_update", 1),
    ):
        found = [record.data["from"] for record in records(action)]
        assert [each["address"] for each in found] == ["192.0.2.7"] * number, action
        for each in found:
            assert each["browser"].startswith("Mozilla/5.0  (Bent)xxx")
            assert len(each["browser"]) == 200


# -- joining ---------------------------------------------------------------------------------------


def test_an_invited_user_chooses_a_password_and_is_signed_in(admin, client):
    invited = User.invite(admin.account, "new@example.org", role="viewer", by=admin)
    link = f"/invitations/{Invitation.issue(invited)}"
    db.session.commit()
    page = client.get(link)

    answer = client.submit(link, chosen("my own battery"))
    client.forget_token()

    assert "Choose a password for new@example.org" in words_of(page.text)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert is_signed_in(client)
    (joined,) = records("user_joined")
    assert joined.user_id == invited.id


# -- confirming the password ----------------------------------------------------------------------


def test_asking_for_access_wants_the_password_again_after_fifteen_minutes(admin, dashboard):
    agent = factories.agent(account=admin.account)
    db.session.commit()
    path = f"/access/new?agent={agent.id}"
    assert dashboard.get(path).status_code == 200
    sql.rewrite("UPDATE sign_ins SET confirmed_at = confirmed_at - interval '15 minutes'")

    for answer in (dashboard.get(path), dashboard.submit(path)):
        assert answer.status_code == 303
        assert answer.headers["Location"].startswith("/profile/confirm?next=/access/new")
    wrong = dashboard.submit("/profile/confirm", {"current_password": "a guess", "next": path})
    right = dashboard.submit("/profile/confirm", {"current_password": PASSWORD, "next": path})

    assert (wrong.status_code, right.headers["Location"]) == (422, path)
    assert dashboard.get(path).status_code == 200
    assert sql.value("SELECT count(*) FROM access_grants") == 0


def test_inviting_and_making_links_want_the_password_again(admin, dashboard):
    colleague = person(account=admin.account)
    db.session.commit()
    dashboard.token()
    sql.rewrite("UPDATE sign_ins SET confirmed_at = confirmed_at - interval '15 minutes'")

    for path in ("/users", f"/users/{colleague.id}/invitation"):
        answer = dashboard.submit(path, {"email": "new@example.org", "role": "viewer"})

        assert answer.headers["Location"].startswith("/profile/confirm"), path
    assert sql.value("SELECT count(*) FROM invitations") == 0


def test_guesses_at_ones_own_password_count_as_failed_sign_ins(admin, dashboard):
    for _ in range(5):
        dashboard.submit("/profile/confirm", {"current_password": "a guess"})
        dashboard.submit(
            "/profile/password", changed_to("another battery", current_password="a guess")
        )

    confirmed = dashboard.submit("/profile/confirm", {"current_password": PASSWORD})
    changed = dashboard.submit("/profile/password", changed_to("another battery"))

    assert (confirmed.status_code, changed.status_code) == (429, 429)
    assert all(890 <= int(each.headers["Retry-After"]) <= 900 for each in (confirmed, changed))
    assert len(records("user_sign_in_failed")) == 10


def test_a_copied_cookie_ends_when_the_password_is_confirmed(app, admin, dashboard):
    token = dashboard.token()
    copied = copy_of(dashboard, app)
    sql.rewrite("UPDATE sign_ins SET confirmed_at = confirmed_at - interval '15 minutes'")

    dashboard.submit("/profile/confirm", {"current_password": PASSWORD})

    assert is_signed_in(dashboard)
    assert not is_signed_in(copied)
    paused = dashboard.post("/schedule", data={"csrf_token": token, "paused": "1"})
    assert paused.status_code == 303  # forms that were open in this browser still work


def test_a_copied_cookie_does_not_rise_with_its_user(app, dashboard, admin, signed_in):
    colleague = person(account=admin.account, role="viewer")
    db.session.commit()
    copied = copy_of(signed_in(colleague), app)

    dashboard.submit(f"/users/{colleague.id}", {"role": "admin"})
    has_ended = not is_signed_in(copied)
    demoted = signed_in(colleague)
    dashboard.submit(f"/users/{colleague.id}", {"role": "viewer"})

    assert has_ended
    assert is_signed_in(demoted)


Sends = Callable[[], TestResponse]


def sent_while_the_password_changes(user: User, send: Sends) -> TestResponse:
    """What is answered to a request that checks the old password, just before the new one is in."""
    user.set_password("another battery")
    SignIn.end_all_of(user)
    user.record("user_password_changed", by=user)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(send)
        eventually(sql.waiting)
        db.session.commit()
        return answer.result(60)


def test_nobody_gets_in_with_the_old_password_while_it_changes(ada, client):
    client.token()

    answer = sent_while_the_password_changes(ada, lambda: client.sign_in("ada@example.org"))

    assert (answer.status_code, is_signed_in(client)) == (422, False)


@pytest.mark.parametrize("path", ["/profile/confirm", "/profile/password"])
def test_a_sign_in_that_ends_meanwhile_confirms_and_changes_nothing(admin, dashboard, path):
    dashboard.token()
    fields = changed_to("yet another battery")

    answer = sent_while_the_password_changes(admin, lambda: dashboard.submit(path, fields))

    db.session.refresh(admin)
    assert (answer.status_code, is_signed_in(dashboard)) == (422, False)
    assert admin.has_password("another battery")


def test_whoever_takes_over_a_colleague_through_a_link_cannot_read_as_them(
    admin, dashboard, client
):
    agent = factories.agent("roses by the wall", account=admin.account)
    other = factories.agent(account=admin.account)
    colleague = person(account=admin.account)
    grant = factories.live_grant(agent, colleague)
    request = factories.grant(other, user_id=colleague.id)
    db.session.commit()

    page = dashboard.submit(f"/users/{colleague.id}/invitation").text
    link = re.search(r'value="[^"]*(/invitations/[^"]+)"', page)[1]
    client.submit(link, chosen("stolen account"))
    client.forget_token()

    assert "roses" not in client.get(f"/agents/{agent.id}/ledger").text
    asked = client.submit(
        f"/access/new?agent={agent.id}",
        {"reason": "failed_session", "purpose": "to read what they say", "duration_minutes": "30"},
    )
    assert asked.status_code == 409
    assert "was set through a link" in words_of(asked.text)
    db.session.expire_all()
    assert (grant.end_reason, grant.ended_by_id) == ("revoked_by_admin", admin.id)
    assert (grant.status, request.status) == ("ended", "failed")
    (changed,) = records("user_password_changed")
    assert changed.data == {"through": "link", "issued_by": admin.id, **HERE}
    assert changed.auditable_id == str(colleague.id)


def test_links_end_when_the_password_changes(app, admin, dashboard, client):
    link = f"/invitations/{Invitation.issue(admin)}"
    db.session.commit()
    assert client.get(link).status_code == 200

    dashboard.submit("/profile/password", changed_to("another battery"))

    assert client.get(link).status_code == 404
