"""Signing in and out, what ends a sign-in, and the links by which people join."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from flask import Flask

from refine.extensions import db
from refine.models import AuditLog, Invitation, SignIn, SignInFailure, User
from refine.models.people.sign_in import MAX_FAILURES_OF_ADDRESS, MAX_FAILURES_OF_EMAIL
from tests import sql
from tests.factories import PASSWORD
from tests.web.conftest import Browser, SignedIn, browser_of, person, records, words_of

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


def test_the_right_password_leads_to_the_overview(ada: User, client: Browser) -> None:
    answer = client.sign_in("ada@example.org")

    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert is_signed_in(client)


def test_e_mail_addresses_ignore_case(ada: User, client: Browser) -> None:
    answer = client.sign_in(" ADA@Example.org ")

    assert answer.status_code == 303


def test_the_answer_does_not_reveal_who_has_an_account(client: Browser) -> None:
    person(email="ada@example.org")
    person(email="gone@example.org", active=False)
    person(email="invited@example.org").password_hash = None
    db.session.commit()
    client.token()

    answers = [
        client.sign_in("ada@example.org", "wrong battery"),
        client.sign_in("nobody@example.org"),
        client.sign_in("gone@example.org"),
        client.sign_in("invited@example.org"),
        client.sign_in("invited@example.org", ""),
    ]

    assert [answer.status_code for answer in answers] == [422] * 5
    assert len({words_of(answer.text) for answer in answers}) == 1
    assert WRONG in answers[0].text
    assert not is_signed_in(client)


def test_the_form_keeps_the_address_but_not_the_password(client: Browser) -> None:
    answer = client.sign_in("ada@example.org", "a wrong battery")

    assert 'value="ada@example.org"' in answer.text
    assert "a wrong battery" not in answer.text


def test_a_sign_in_begins_with_a_new_cookie(ada: User, client: Browser, app: Flask) -> None:
    client.token()
    planted = copy_of(client, app)

    client.sign_in("ada@example.org")

    assert is_signed_in(client)
    assert not is_signed_in(planted)


def test_a_csrf_token_from_before_the_sign_in_is_invalid(ada: User, client: Browser) -> None:
    before = client.token()
    client.sign_in("ada@example.org")

    answer = client.post("/sign-out", data={"csrf_token": before})

    assert answer.status_code == 400
    assert is_signed_in(client)


def test_a_cookie_unknown_to_the_server_does_not_sign_in(ada: User, client: Browser) -> None:
    client.sign_in("ada@example.org")

    sql.run("DELETE FROM sign_ins")

    assert not is_signed_in(client)


def test_the_secret_of_a_cookie_is_not_stored(ada: User, client: Browser) -> None:
    client.sign_in("ada@example.org")

    with client.session_transaction() as cookie:
        secret = cookie["_user_id"]

    assert secret
    assert secret not in str(sql.snapshot())


def test_the_form_redirects_signed_in_users(dashboard: Browser) -> None:
    answer = dashboard.get("/sign-in?next=/agents")

    assert (answer.status_code, answer.headers["Location"]) == (302, "/agents")


# -- where it leads --------------------------------------------------------------------------------


def test_signing_in_leads_to_the_requested_page(ada: User, client: Browser) -> None:
    asked = client.get("/audit?action=user_signed_in&since=2026-01-01")
    form = client.get(asked.headers["Location"])

    answer = client.sign_in("ada@example.org", next="/audit?action=user_signed_in&since=2026-01-01")

    assert 'name="next" value="/audit?action=user_signed_in&amp;since=2026-01-01"' in form.text
    assert answer.headers["Location"] == "/audit?action=user_signed_in&since=2026-01-01"


def test_signing_in_never_redirects_to_another_site(ada: User, client: Browser) -> None:
    for elsewhere in (
        *("//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example"),
        *("https://evil.example/", "https:evil.example", "javascript:alert(1)"),
        *("/\t/evil.example", "/\n/evil.example", "/\t\\evil.example", " //evil.example"),
        *("evil", ""),
    ):
        answer = client.sign_in("ada@example.org", next=elsewhere)

        assert (answer.status_code, answer.headers["Location"]) == (303, "/"), elsewhere


def test_a_signed_out_post_redirects_to_the_form_without_a_target(client: Browser) -> None:
    answer = client.submit("/schedule", {"paused": "1"})

    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in")


def test_a_signed_out_fragment_redirects_the_entire_page(client: Browser) -> None:
    page = "https://refine.example.org/sessions/7?live=1"

    answer = client.get("/sessions", headers={"HX-Request": "true", "HX-Current-URL": page})

    assert answer.status_code == 401
    assert answer.headers["HX-Redirect"] == "/sign-in?next=/sessions/7"


# -- too many failures -----------------------------------------------------------------------------


def failed(number: int, *, email: str = "ada@example.org", address: str = "10.0.0.1") -> None:
    """So many failures until now."""
    for each in range(number):
        SignInFailure.note(email.format(each), address)
    db.session.commit()


def test_ten_failures_lock_an_e_mail_address(ada: User, client: Browser) -> None:
    answers = [client.sign_in("ada@example.org", "wrong battery") for _ in range(10)]

    refused = client.sign_in("ADA@example.org")

    assert {answer.status_code for answer in answers} == {422}
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "900"
    assert "Too many sign-ins failed; try again in 15 minutes." in refused.text
    assert not is_signed_in(client)


def test_nine_failures_do_not_lock_it(ada: User, client: Browser) -> None:
    failed(MAX_FAILURES_OF_EMAIL - 1)

    assert client.sign_in("ada@example.org").status_code == 303


def test_other_e_mail_addresses_are_not_locked(ada: User, client: Browser) -> None:
    failed(MAX_FAILURES_OF_EMAIL, email="eve@example.org")

    assert client.sign_in("ada@example.org").status_code == 303


def test_unknown_addresses_are_locked_too(client: Browser) -> None:
    failed(MAX_FAILURES_OF_EMAIL, email="nobody@example.org")

    assert client.sign_in("nobody@example.org").status_code == 429


def test_a_hundred_failures_lock_a_network_address(ada: User, client: Browser) -> None:
    failed(MAX_FAILURES_OF_ADDRESS - 1, email="user{}@example.org", address="127.0.0.1")

    last = client.sign_in("somebody@example.org", "wrong battery")
    refused = client.sign_in("ada@example.org")

    assert last.status_code == 422
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "900")


def test_other_network_addresses_are_not_locked(ada: User, client: Browser) -> None:
    failed(MAX_FAILURES_OF_ADDRESS, email="user{}@example.org", address="10.9.8.7")

    assert client.sign_in("ada@example.org").status_code == 303


def test_a_lock_ends_after_fifteen_minutes(
    clock: time_machine.Traveller, ada: User, client: Browser
) -> None:
    failed(MAX_FAILURES_OF_EMAIL)
    clock.shift(timedelta(minutes=14, seconds=30))
    refused = client.sign_in("ada@example.org")
    clock.shift(timedelta(minutes=1))

    taken = client.sign_in("ada@example.org")

    assert (refused.status_code, taken.status_code) == (429, 303)


def test_failures_count_across_processes(ada: User, client: Browser, with_settings: object) -> None:
    failed(MAX_FAILURES_OF_EMAIL)
    other = browser_of(with_settings())  # type: ignore[operator]

    assert other.sign_in("ada@example.org").status_code == 429


def test_tried_addresses_are_stored_only_as_hashes(client: Browser) -> None:
    client.sign_in("somebody@example.org", "wrong battery")

    assert sql.value("SELECT count(*) FROM sign_in_failures") == 1
    assert "somebody" not in str(sql.snapshot())


# -- what ends it ----------------------------------------------------------------------------------


def test_signing_out_ends_the_sign_in_on_the_server(dashboard: Browser, app: Flask) -> None:
    copied = copy_of(dashboard, app)
    assert is_signed_in(copied)

    answer = dashboard.submit("/sign-out")

    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in")
    assert answer.headers["Clear-Site-Data"] == '"cache"'
    assert not is_signed_in(dashboard)
    assert not is_signed_in(copied)


def test_signing_out_keeps_other_browsers_signed_in(
    admin: User, dashboard: Browser, signed_in: SignedIn
) -> None:
    other = signed_in(admin)

    dashboard.submit("/sign-out")

    assert is_signed_in(other)


def changed_to(password: str, **fields: str) -> dict[str, str]:
    return {
        "current_password": PASSWORD,
        "password": password,
        "confirm_password": password,
        **fields,
    }


def test_a_new_password_signs_out_other_browsers(
    admin: User, dashboard: Browser, signed_in: SignedIn
) -> None:
    other = signed_in(admin)

    answer = dashboard.submit("/profile/password", changed_to("another battery"))

    assert answer.status_code == 303
    assert is_signed_in(dashboard)
    assert not is_signed_in(other)
    assert other.sign_in(admin.email).status_code == 422
    assert other.sign_in(admin.email, "another battery").status_code == 303


def test_an_invalid_password_change_changes_nothing(admin: User, dashboard: Browser) -> None:
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


def test_deactivating_a_user_signs_them_out_at_once(
    admin: User, dashboard: Browser, signed_in: SignedIn
) -> None:
    viewer = person(account=admin.account, role="viewer")
    theirs = signed_in(viewer)

    dashboard.submit(f"/users/{viewer.id}", {"active": "0"})
    is_out = not is_signed_in(theirs)
    dashboard.submit(f"/users/{viewer.id}", {"active": "1"})

    assert is_out
    assert not is_signed_in(theirs), "the old cookie must not come back to life"
    assert theirs.sign_in(viewer.email).status_code == 303


def test_twelve_idle_hours_end_a_sign_in(
    clock: time_machine.Traveller, ada: User, client: Browser
) -> None:
    client.sign_in("ada@example.org")
    clock.shift(timedelta(hours=11, minutes=59))
    is_in = is_signed_in(client)
    clock.shift(timedelta(hours=12, minutes=1))

    assert is_in
    assert not is_signed_in(client)


def test_seven_days_end_a_sign_in_in_constant_use(
    clock: time_machine.Traveller, ada: User, client: Browser
) -> None:
    client.sign_in("ada@example.org")
    for _ in range(16):
        clock.shift(timedelta(hours=10, minutes=29))
        assert is_signed_in(client)

    clock.shift(timedelta(minutes=17))

    assert not is_signed_in(client)


# -- records ---------------------------------------------------------------------------------------


def of_user(record: AuditLog) -> tuple[int | None, int | None, str | None]:
    return record.user_id, record.account_id, record.auditable_id


def test_signing_in_and_out_are_recorded(ada: User, client: Browser) -> None:
    client.sign_in("ada@example.org")
    client.submit("/sign-out")

    both = records("user_signed_in") + records("user_signed_out")
    assert [of_user(record) for record in both] == [(ada.id, ada.account_id, str(ada.id))] * 2


def test_a_failed_sign_in_is_recorded_in_the_users_account(ada: User, client: Browser) -> None:
    client.sign_in("ada@example.org", "wrong battery")

    (record,) = records("user_sign_in_failed")
    assert of_user(record) == (None, ada.account_id, str(ada.id))


def test_a_failed_sign_in_of_nobody_is_recorded_in_the_platforms_chain(client: Browser) -> None:
    client.sign_in("nobody@example.org", "wrong battery")

    (record,) = records("user_sign_in_failed")
    assert of_user(record) == (None, None, None)
    assert "nobody@" not in str(record.data)


def test_a_password_change_is_recorded(admin: User, dashboard: Browser) -> None:
    dashboard.submit("/profile/password", changed_to("another battery"))

    (record,) = records("user_password_changed")
    assert record.user_id == admin.id


# -- joining ---------------------------------------------------------------------------------------


@pytest.fixture
def invited(admin: User) -> User:
    return User.invite(admin.account, "new@example.org", role="viewer", by=admin)


@pytest.fixture
def link(invited: User) -> str:
    secret = Invitation.issue(invited)
    db.session.commit()
    return f"/invitations/{secret}"


def chosen(password: str = "my own battery") -> dict[str, str]:
    return {"password": password, "confirm_password": password}


def test_an_invited_user_chooses_a_password_and_is_signed_in(
    invited: User, link: str, client: Browser
) -> None:
    page = client.get(link)

    answer = client.submit(link, chosen())
    client.forget_token()

    assert "Choose a password for new@example.org" in words_of(page.text)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    assert is_signed_in(client)
    (joined,) = records("user_joined")
    assert joined.user_id == invited.id


def test_an_invitation_works_once(link: str, client: Browser, app: Flask) -> None:
    client.submit(link, chosen())
    other = browser_of(app)

    again = [other.get(link), other.submit(link, chosen("another battery"))]

    assert [answer.status_code for answer in again] == [404, 404]
    assert "This link is no longer valid" in again[0].text
    assert other.sign_in("new@example.org", "another battery").status_code == 422


def test_opening_a_link_does_not_use_it_up(link: str, client: Browser) -> None:
    client.get(link)
    client.get(link)

    assert client.submit(link, chosen()).status_code == 303


def test_an_invitation_works_for_seven_days(
    clock: time_machine.Traveller, link: str, client: Browser
) -> None:
    clock.shift(timedelta(days=6, hours=23))
    before = client.get(link).status_code
    clock.shift(timedelta(hours=2))

    after = [client.get(link).status_code, client.submit(link, chosen()).status_code]

    assert (before, after) == (200, [404, 404])


def test_a_newer_link_replaces_the_older_one(invited: User, link: str, client: Browser) -> None:
    newer = Invitation.issue(invited)
    db.session.commit()

    assert client.get(link).status_code == 404
    assert client.get(f"/invitations/{newer}").status_code == 200


def test_the_link_of_a_deactivated_user_is_invalid(
    invited: User, link: str, client: Browser
) -> None:
    invited.active = False
    db.session.commit()

    assert client.get(link).status_code == 404


def test_an_invalid_password_does_not_use_up_the_link(link: str, client: Browser) -> None:
    short = client.submit(link, chosen("short"))
    unlike = client.submit(link, {"password": "my own battery", "confirm_password": "my battery"})

    assert (short.status_code, unlike.status_code) == (422, 422)
    assert "10 to 1,000 characters" in words_of(short.text)
    assert "do not match" in words_of(unlike.text)
    assert "my own battery" not in unlike.text
    assert client.submit(link, chosen()).status_code == 303


def test_a_new_password_through_a_link_ends_all_sign_ins(
    admin: User, dashboard: Browser, client: Browser
) -> None:
    secret = Invitation.issue(admin)
    db.session.commit()

    client.submit(f"/invitations/{secret}", chosen())
    client.forget_token()

    assert is_signed_in(client)
    assert not is_signed_in(dashboard)


def test_an_invited_user_cannot_sign_in_without_a_password(link: str, client: Browser) -> None:
    assert client.sign_in("new@example.org", "").status_code == 422


def test_the_secret_of_a_link_is_not_stored(link: str) -> None:
    assert link.rpartition("/")[2] not in str(sql.snapshot())


# -- what it leaves --------------------------------------------------------------------------------


def test_the_last_visit_is_stored_once_a_minute(
    clock: time_machine.Traveller, ada: User, client: Browser
) -> None:
    client.sign_in("ada@example.org")

    def last_seen() -> datetime:
        db.session.rollback()
        return db.session.scalars(db.select(SignIn.last_seen_at)).one()

    begun = last_seen()
    clock.shift(timedelta(seconds=30))
    client.get("/profile")
    soon = last_seen()
    clock.shift(timedelta(seconds=60))
    client.get("/profile")

    assert soon == begun
    assert last_seen() - begun >= timedelta(seconds=90)
