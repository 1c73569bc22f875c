"""Second factors: what is closed until one is given, how they are added, and how they end."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from flask import Flask

from refine import clock
from refine.extensions import db
from refine.models import Invitation, PasswordGuess, SecondFactor, SignIn, User
from refine.models.people.second_factor import FACTORS
from refine.models.people.sign_in import MAX_GUESSES
from tests import factories, sql
from tests.authenticator import Authenticator
from tests.factories import PASSWORD, app_of, code_of
from tests.web.conftest import Browser, browser_of, browser_with, person, records, said, words_of

FORM = "/sign-in/second-factor"
MINE = "/profile/second-factors"


@pytest.fixture(autouse=True)
def time() -> Iterator[time_machine.Traveller]:
    """Time that goes on by itself, and can be moved."""
    with time_machine.travel(datetime.now(UTC), tick=True) as traveller:
        yield traveller


@pytest.fixture
def ada(app: Flask) -> User:
    made = person(email="ada@example.org")
    db.session.commit()
    return made


@pytest.fixture
def key(ada: User) -> str:
    """The key of Ada's authenticator app."""
    made = app_of(ada)
    db.session.commit()
    return made


@pytest.fixture
def device() -> Authenticator:
    return Authenticator()


def is_signed_in(browser: Browser) -> bool:
    return browser.get("/profile").status_code == 200


def gives(browser: Browser, **fields: str):
    answer = browser.submit(FORM, fields)
    browser.forget_token()
    return answer


def asked(browser: Browser, query: str = "") -> dict:
    return json.loads(browser.submit(f"/passkeys/challenge{query}").text)


def with_passkey(user: User, device: Authenticator, browser: Browser) -> None:
    """Add one in this browser, in which the user is signed in."""
    answer = device.create(asked(browser, "?new=1"))
    added = browser.submit(f"{MINE}/passkey", {"name": "phone", "passkey": answer})
    browser.forget_token()
    assert added.status_code in (200, 303)


def signed_in_with_factor(app: Flask, user: User) -> Browser:
    begun = SignIn.begin(user, factor_at=clock.now())
    db.session.commit()
    return browser_with(app, begun.secret)


def enrol(browser: Browser) -> str:
    """Add an app by the pages, and return its key."""
    page = browser.submit(f"{MINE}/app").text
    key = re.search(r'value="([A-Z2-7]{32})"', page)[1]
    answer = browser.submit(f"{MINE}/app", {"code": code_of(key)})
    browser.forget_token()
    assert answer.status_code == 200
    return key


# -- signing in ------------------------------------------------------------------------------------


def test_the_password_alone_signs_nobody_in_who_has_a_second_factor(ada, key, client):
    answer = client.sign_in("ada@example.org", next="/agents")

    assert answer.headers["Location"] == f"{FORM}?next=/agents"
    assert not is_signed_in(client)
    assert records("user_signed_in") == []
    assert "ada@example.org" in said(client, FORM)


def test_a_code_signs_in_and_leads_to_the_requested_page(ada, key, client):
    client.sign_in("ada@example.org")

    answer = gives(client, code=code_of(key), next="/agents")

    assert (answer.status_code, answer.headers["Location"]) == (303, "/agents")
    assert is_signed_in(client)
    (record,) = records("user_signed_in")
    assert (record.user_id, record.data["from"]["address"]) == (ada.id, "127.0.0.1")


def test_a_recovery_code_signs_in_once(ada, key, client, app):
    codes = SecondFactor.make_codes(ada)
    db.session.commit()
    other = browser_of(app)
    for browser in (client, other):
        browser.sign_in("ada@example.org")

    assert gives(client, code=codes[0]).status_code == 303
    assert gives(other, code=codes[0]).status_code == 422
    assert (is_signed_in(client), is_signed_in(other)) == (True, False)


def test_a_code_that_signed_in_is_not_taken_again(ada, key, client, app):
    code, other = code_of(key), browser_of(app)
    for browser in (client, other):
        browser.sign_in("ada@example.org")
    gives(client, code=code)

    again = gives(other, code=code)

    assert again.status_code == 422
    assert "The code is wrong, or was used before." in words_of(again.text)
    assert not is_signed_in(other)


def test_wrong_codes_are_counted_from_everywhere(ada, key, client):
    client.sign_in("ada@example.org")
    for each in range(MAX_GUESSES):
        PasswordGuess("ada@example.org", f"192.0.2.{each}", codes_of=ada.id).count()
    db.session.commit()

    refused = gives(client, code=code_of(key))

    assert refused.status_code == 429
    assert not is_signed_in(client)


def test_wrong_codes_and_wrong_passwords_have_one_limit(ada, key, client):
    for _ in range(5):
        client.sign_in("ada@example.org", "wrong battery")
    client.sign_in("ada@example.org")
    wrong = [gives(client, code="000000").status_code for _ in range(6)]

    assert wrong == [422] * 5 + [429]
    assert client.sign_in("ada@example.org").status_code == 429
    assert len(records("user_sign_in_failed")) == 10


def test_whoever_gave_the_password_has_five_minutes(ada, key, client, time):
    client.sign_in("ada@example.org")

    time.shift(timedelta(minutes=5))

    assert gives(client, code=code_of(key)).status_code == 422
    assert client.get(FORM).headers["Location"] == "/sign-in"
    assert not is_signed_in(client)


def test_waiting_ends_with_the_password_the_user_and_the_reset(app, ada, key):
    def change_password():
        signed_in_with_factor(app, ada).submit(
            "/profile/password",
            {"current_password": PASSWORD, "password": "x" * 10, "confirm_password": "x" * 10},
        )

    def deactivate():
        ada.active = False
        db.session.commit()

    def reset():
        SecondFactor.reset(ada)
        db.session.commit()

    for end in (reset, change_password, deactivate):
        browser = browser_of(app)
        browser.sign_in("ada@example.org")
        end()
        assert gives(browser, code=code_of(key)).status_code == 422, end.__name__
        assert not is_signed_in(browser), end.__name__
        if end is reset:
            key = app_of(ada)
            db.session.commit()


def test_a_waiting_cookie_opens_nothing_wherever_it_is_put(app, ada, key, client):
    client.sign_in("ada@example.org")
    with client.session_transaction() as cookie:
        secret = cookie["waiting"]
    copied = browser_with(app, secret)
    still = browser_of(app)
    with still.session_transaction() as cookie:
        cookie["waiting"] = secret

    assert not is_signed_in(copied)
    gives(client, code=code_of(key))
    assert is_signed_in(client)
    assert not is_signed_in(copied), "the sign-in has another secret from then on"
    assert still.get(FORM).headers["Location"] == "/sign-in"


def test_a_password_link_does_not_replace_the_second_factor(ada, key, client):
    link = f"/invitations/{Invitation.issue(ada)}"
    db.session.commit()

    answer = client.submit(link, {"password": "x" * 10, "confirm_password": "x" * 10})
    client.forget_token()

    assert answer.headers["Location"].startswith(FORM)
    assert not is_signed_in(client)
    gives(client, code=code_of(key))
    assert is_signed_in(client)


def test_a_changed_password_keeps_this_browser_signed_in(app, ada, key):
    browser = signed_in_with_factor(app, ada)
    fields = {"password": "x" * 10, "confirm_password": "x" * 10}

    browser.submit("/profile/password", {"current_password": PASSWORD, **fields})

    assert is_signed_in(browser)


# -- passkeys --------------------------------------------------------------------------------------


def test_a_passkey_is_a_second_factor_and_signs_in_alone(app, ada, signed_in, device, client):
    with_passkey(ada, device, signed_in(ada))

    client.sign_in("ada@example.org")
    assert asked(client)["allowCredentials"]
    assert gives(client, passkey=device.use(asked(client))).status_code == 303
    assert is_signed_in(client)

    alone = browser_of(app)
    assert not asked(alone)["allowCredentials"]
    assert gives(alone, passkey=device.use(asked(alone))).status_code == 303
    assert is_signed_in(alone)
    assert len(records("user_signed_in")) == 3


def test_a_passkey_lets_nobody_in_who_must_go_to_the_provider(
    ada, signed_in, device, client, set_setting
):
    with_passkey(ada, device, signed_in(ada))
    ada.identity_hash = "of the provider"
    ada.record("user_linked")
    db.session.commit()
    set_setting(oidc_only=True)

    answer = gives(client, passkey=device.use(asked(client)))

    assert (answer.status_code, is_signed_in(client)) == (422, False)


def test_a_passkey_alone_is_no_password(app, ada, signed_in, device, client):
    agent = factories.agent(account=ada.account)
    with_passkey(ada, device, signed_in(ada))
    gives(client, passkey=device.use(asked(client)))

    asking = client.get(f"/access/new?agent={agent.id}")

    assert asking.headers["Location"].startswith("/profile/confirm")
    page = client.get("/profile/confirm").text
    assert ('name="current_password"' in page, 'name="code"' in page) == (True, False)


def test_an_answer_is_taken_by_its_browser_once_and_for_five_minutes(
    app, ada, signed_in, device, client, time
):
    with_passkey(ada, device, signed_in(ada))
    other = browser_of(app)
    challenge = asked(client)
    before = client.get_cookie("session")
    answer = device.use(challenge)

    assert gives(other, passkey=answer).status_code == 422, "it was asked of another browser"
    assert gives(client, passkey=answer).status_code == 303
    replay = browser_of(app)
    replay.token()
    replay.set_cookie("session", before.value)
    with replay.session_transaction() as cookie:
        token = cookie["csrf_token"]
    assert token
    replay.forget_token()
    assert gives(replay, passkey=answer).status_code == 422, "an older cookie brings nothing back"
    late = device.use(asked(other))
    time.shift(timedelta(minutes=5, seconds=1))
    answer = gives(other, passkey=late)
    assert (answer.status_code, "too long ago" in answer.text) == (422, True)
    assert [is_signed_in(each) for each in (other, replay)] == [False, False]


def test_the_passkey_of_somebody_else_is_no_second_factor(app, ada, key, signed_in, client):
    mallory, theirs = person(account=ada.account), Authenticator()
    db.session.commit()
    with_passkey(mallory, theirs, signed_in(mallory))
    client.sign_in("ada@example.org")

    answer = gives(client, passkey=theirs.use(asked(client)))

    assert answer.status_code == 422
    assert not is_signed_in(client)


def test_a_copied_passkey_is_refused_and_a_record(ada, signed_in, device, client):
    with_passkey(ada, device, signed_in(ada))
    device.count = 0

    answer = gives(client, passkey=device.use(asked(client)))

    assert answer.status_code == 422
    assert "This passkey was copied" in words_of(answer.text)
    assert not is_signed_in(client)
    assert len(records("passkey_refused")) == 1


def test_wrong_passkeys_are_counted_and_recorded(client):
    tried = [gives(client, passkey="{}").status_code for _ in range(11)]

    assert tried == [422] * 10 + [429]
    assert len(records("user_sign_in_failed")) == 10


# -- a fresh one -----------------------------------------------------------------------------------


def test_asking_for_access_wants_a_fresh_second_factor(app, ada, key, time):
    agent = factories.agent(account=ada.account)
    db.session.commit()
    browser, path = signed_in_with_factor(app, ada), f"/access/new?agent={agent.id}"
    assert browser.get(path).status_code == 200

    time.shift(timedelta(minutes=5))

    for answer in (browser.get(path), browser.submit(path, {"reason": "agent_asked"})):
        assert answer.headers["Location"].startswith("/profile/confirm?next=/access/new")
    page = browser.get(f"/profile/confirm?next={path}").text
    assert ('name="current_password"' in page, 'name="code"' in page) == (False, True)
    assert browser.submit("/profile/confirm", {"code": "000000"}).status_code == 422
    given = browser.submit("/profile/confirm", {"code": code_of(key), "next": path})
    assert given.headers["Location"] == path
    assert browser.get(path).status_code == 200
    assert sql.value("SELECT count(*) FROM access_grants") == 0


def test_inviting_and_links_and_all_that_changes_factors_want_a_fresh_one(app, ada, key, time):
    colleague = person(account=ada.account)
    app_of(colleague)
    db.session.commit()
    browser = signed_in_with_factor(app, ada)
    browser.token()
    (mine,) = SecondFactor.of(ada, *FACTORS)
    time.shift(timedelta(minutes=5))
    browser.get("/profile")
    before = sql.without_counts()

    for path in (
        *("/users", f"/users/{colleague.id}/invitation", "/users/second-factor"),
        *(f"/users/{colleague.id}/second-factors/reset", f"{MINE}/app", f"{MINE}/passkey"),
        *(f"{MINE}/codes", f"{MINE}/{mine.id}/removed"),
    ):
        answer = browser.submit(path, {"email": "new@example.org", "required": "1"})
        assert answer.headers["Location"].startswith("/profile/confirm"), path
    assert browser.get(MINE).headers["Location"] == f"/profile/confirm?next={MINE}"
    assert sql.without_counts() == before


def test_both_are_wanted_when_both_are_old(app, ada, key, time):
    browser = signed_in_with_factor(app, ada)
    browser.token()
    time.shift(timedelta(minutes=15))

    def confirms(**fields):
        return browser.submit("/profile/confirm", {"next": MINE, **fields}).status_code

    assert confirms(current_password=PASSWORD) == 422
    assert confirms(code=code_of(key)) == 422
    assert confirms(current_password="wrong battery", code=code_of(key)) == 422
    assert confirms(current_password=PASSWORD, code=code_of(key)) == 303
    assert browser.get(MINE).status_code == 200


# -- adding and removing ---------------------------------------------------------------------------


def test_an_app_is_added_with_its_key_and_codes_shown_once(ada, signed_in, client):
    browser, other = signed_in(ada), signed_in(ada)

    page = browser.submit(f"{MINE}/app").text
    key = re.search(r'value="([A-Z2-7]{32})"', page)[1]
    wrong = browser.submit(f"{MINE}/app", {"code": "000000"})
    answer = browser.submit(f"{MINE}/app", {"code": code_of(key)})
    browser.forget_token()

    assert 'src="data:image/svg+xml' in page
    assert (wrong.status_code, key in wrong.text) == (422, False)
    codes = re.findall(r"<code>([0-9a-f-]{14})</code>", answer.text)
    assert len(codes) == 10
    shown = browser.get(MINE).text
    assert "10 left" in shown
    assert not [code for code in (*codes, key) if code in shown]
    assert is_signed_in(browser)
    assert not is_signed_in(other), "it was signed in with the password alone"
    client.sign_in("ada@example.org")
    assert gives(client, code=codes[3]).status_code == 303


def test_a_second_one_leaves_the_recovery_codes_alone(app, ada, key, device):
    codes = SecondFactor.make_codes(ada)
    db.session.commit()
    browser = signed_in_with_factor(app, ada)

    with_passkey(ada, device, browser)

    assert "10 left" in browser.get(MINE).text
    assert "phone" in said(browser, MINE)
    SecondFactor.use_code(ada, codes[0])


def test_new_codes_are_shown_once_and_need_a_factor(app, ada, key, signed_in):
    browser = signed_in_with_factor(app, ada)
    answer = browser.submit(f"{MINE}/codes")
    other = person()
    db.session.commit()

    assert len(re.findall(r"<code>[0-9a-f-]{14}</code>", answer.text)) == 10
    assert signed_in(other).submit(f"{MINE}/codes").status_code == 409


def test_the_last_one_is_removed_unless_the_account_demands_it(app, ada, key):
    browser = signed_in_with_factor(app, ada)
    (mine,) = SecondFactor.of(ada, *FACTORS)
    path = f"{MINE}/{mine.id}/removed"
    ada.account.configure(user=ada, second_factor_required=True)
    db.session.commit()

    refused = browser.submit(path)
    ada.account.configure(user=ada, second_factor_required=False)
    db.session.commit()
    removed = browser.submit(path)

    assert (refused.status_code, removed.status_code) == (409, 303)
    assert "Your account demands a second factor" in words_of(refused.text)
    assert browser.submit(path).status_code == 404
    db.session.refresh(ada)
    assert not ada.has_second_factor


# -- demanded by the account -----------------------------------------------------------------------


@pytest.fixture
def demanded(ada: User, key: str) -> User:
    """A colleague without a second factor, in Ada's account, which demands one."""
    colleague = person(account=ada.account, email="bo@example.org")
    ada.account.configure(user=ada, second_factor_required=True)
    db.session.commit()
    return colleague


def test_whoever_has_none_is_led_to_add_one_and_reaches_nothing_else(demanded, client):
    answer = client.sign_in("bo@example.org", next="/agents")
    led = client.get(answer.headers["Location"])

    assert led.headers["Location"] == MINE
    assert "demands a second factor" in said(client, MINE)
    assert not is_signed_in(client)
    for path in (f"{MINE}/codes", f"{MINE}/1/removed", "/profile/password", "/users"):
        assert client.submit(path).headers["Location"] == "/sign-in"
    enrol(client)
    assert is_signed_in(client)
    assert len(records("user_signed_in")) == 1


def test_a_demand_signs_out_who_has_none(app, ada, key, signed_in):
    colleague = person(account=ada.account)
    db.session.commit()
    theirs, mine = signed_in(colleague), signed_in_with_factor(app, ada)
    assert is_signed_in(theirs)

    answer = mine.submit("/users/second-factor", {"required": "1"})

    assert answer.status_code == 303
    assert (is_signed_in(theirs), is_signed_in(mine)) == (False, True)
    (record,) = records("account_settings_update")
    assert record.data["changes"] == {"second_factor_required": [False, True]}


def test_only_an_admin_who_has_one_demands_one(ada, signed_in):
    viewer = person(account=ada.account, role="viewer")
    db.session.commit()

    for user in (ada, viewer):
        assert signed_in(user).submit("/users/second-factor", {"required": "1"}).status_code == 403
    db.session.refresh(ada.account)
    assert not ada.account.second_factor_required


def test_nobody_adds_a_first_one_by_the_password_alone_after_the_user_did(
    demanded, app, client, time
):
    thief = browser_of(app)
    for browser in (thief, client):
        browser.sign_in("bo@example.org")
    page = thief.submit(f"{MINE}/app").text
    stolen = re.search(r'value="([A-Z2-7]{32})"', page)[1]
    enrol(client)

    late = thief.submit(f"{MINE}/app", {"code": code_of(stolen)})

    assert late.headers["Location"] == "/sign-in"
    assert not is_signed_in(thief)
    assert is_signed_in(client)


def test_the_first_one_may_take_a_quarter_of_an_hour(demanded, client, time):
    client.sign_in("bo@example.org")
    time.shift(timedelta(minutes=14))
    assert client.get(MINE).status_code == 200
    time.shift(timedelta(minutes=1))

    assert client.get(MINE).headers["Location"] == "/sign-in"


def test_an_invited_user_adds_one_before_anything_else(demanded, client):
    invited = User.invite(demanded.account, "new@example.org", role="viewer", by=demanded)
    link = f"/invitations/{Invitation.issue(invited)}"
    db.session.commit()

    client.submit(link, {"password": "x" * 10, "confirm_password": "x" * 10})
    client.forget_token()

    assert not is_signed_in(client)
    enrol(client)
    assert is_signed_in(client)


# -- reset by an admin -----------------------------------------------------------------------------


def test_a_reset_opens_no_reading(app, ada, key, signed_in, client):
    admin = person(account=ada.account)
    agent = factories.agent("roses by the wall", account=ada.account)
    grant = factories.live_grant(agent, ada)
    db.session.commit()
    theirs = signed_in_with_factor(app, ada)

    answer = signed_in(admin).submit(f"/users/{ada.id}/second-factors/reset")

    assert answer.status_code == 303
    assert not is_signed_in(theirs)
    db.session.expire_all()
    assert (grant.status, grant.ended_by_id) == ("ended", admin.id)
    (record,) = records("second_factors_reset")
    assert (record.user_id, record.auditable_id) == (admin.id, str(ada.id))
    client.sign_in("ada@example.org")
    assert is_signed_in(client), "by the password alone, until they add another one"
    asked = client.submit(
        f"/access/new?agent={agent.id}",
        {"reason": "failed_session", "purpose": "to read what they say", "duration_minutes": "30"},
    )
    assert asked.status_code == 409
    assert "second factor was reset" in words_of(asked.text)


def test_an_admin_resets_no_site_admin_and_not_themselves(app, ada, key, signed_in):
    site_admin = person(account=ada.account, site_admin=True)
    app_of(site_admin)
    db.session.commit()
    browser = signed_in_with_factor(app, ada)

    for user in (site_admin, ada):
        path = f"/users/{user.id}/second-factors/reset"
        assert browser.submit(path).status_code == 403
    db.session.expire_all()
    assert site_admin.has_second_factor
    assert ada.has_second_factor
