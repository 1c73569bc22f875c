"""Authenticator apps, passkeys and recovery codes: what each takes, and takes once."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from secrets import token_bytes

import pyotp
import pytest
from sqlalchemy import select

from refine.errors import InvalidValue, NotFound, Refused, RowAltered
from refine.extensions import db
from refine.models import AuditLog, SecondFactor
from refine.models.people import passkeys
from refine.models.people.second_factor import FACTORS, KINDS, handle_of
from tests import factories, sql
from tests.authenticator import ORIGIN, PRESENT, Authenticator
from tests.chains import problems

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
STEP = timedelta(seconds=30)


@pytest.fixture
def user(app):
    return factories.user()


def confirmed_app(user, at=AT - timedelta(minutes=5)):
    key = SecondFactor.begin_app(user)
    SecondFactor.confirm_app(user, factories.code_of(key, at), at)
    return key


def is_taken(user, code, at=AT):
    try:
        SecondFactor.use_code(user, code, at)
    except InvalidValue:
        return False
    return True


def actions():
    db.session.flush()
    return list(db.session.scalars(select(AuditLog.action).order_by(AuditLog.id)))


# -- apps ------------------------------------------------------------------------------------------


def test_an_app_counts_once_it_showed_a_code(user):
    key = SecondFactor.begin_app(user)
    code = factories.code_of(key, AT)

    assert not is_taken(user, code)
    with pytest.raises(InvalidValue, match="clock of your phone"):
        SecondFactor.confirm_app(user, "000000", AT)
    assert not user.has_second_factor
    SecondFactor.confirm_app(user, code, AT)

    assert user.has_second_factor
    assert "second_factor_added" in actions()
    assert not is_taken(user, code), "it was used to confirm the app"


def test_a_new_key_ends_one_that_was_never_confirmed(user):
    first = SecondFactor.begin_app(user)
    SecondFactor.begin_app(user)

    with pytest.raises(InvalidValue):
        SecondFactor.confirm_app(user, factories.code_of(first, AT), AT)


@pytest.mark.parametrize(
    ("late", "is_right"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)]
)
def test_a_code_may_be_one_half_minute_early_or_late(user, late, is_right):
    key = confirmed_app(user)

    assert is_taken(user, factories.code_of(key, AT + late * STEP)) is is_right


def test_a_code_is_taken_once_and_none_from_before_it(user):
    key = confirmed_app(user)
    before, code = factories.code_of(key, AT - STEP), factories.code_of(key, AT)

    assert is_taken(user, f" {code[:3]} {code[3:]} ")
    assert not is_taken(user, code)
    assert not is_taken(user, before)
    assert is_taken(user, factories.code_of(key, AT + STEP), AT + STEP)


def test_the_key_of_an_app_is_sealed_in_its_place(user):
    key = confirmed_app(user)
    other = factories.user()
    confirmed_app(other)
    db.session.commit()

    stored = sql.value("SELECT app_key FROM second_factors ORDER BY id LIMIT 1")
    assert key.encode() not in bytes(stored)
    sql.run(
        "UPDATE second_factors f SET app_key = g.app_key FROM second_factors g "
        f"WHERE f.user_id = {other.id} AND g.user_id = {user.id}"
    )
    db.session.expire_all()
    assert not is_taken(other, factories.code_of(key, AT)), "a row that was altered does not count"


# -- recovery codes --------------------------------------------------------------------------------


def test_each_of_ten_recovery_codes_is_taken_once(user):
    codes = SecondFactor.make_codes(user)

    assert len(set(codes)) == 10
    assert is_taken(user, codes[0].upper())
    assert not is_taken(user, codes[0])
    assert is_taken(user, f"{codes[1][:4]}-{codes[1][4:8]}-{codes[1][8:]}")
    (used, last) = db.session.scalars(
        select(AuditLog).where(AuditLog.action == "recovery_code_used").order_by(AuditLog.id)
    )
    assert (used.data["left"], last.data["left"]) == (9, 8)


def test_new_recovery_codes_end_the_old_ones(user):
    old = SecondFactor.make_codes(user)
    new = SecondFactor.make_codes(user)

    assert not is_taken(user, old[0])
    assert is_taken(user, new[0])


def test_a_recovery_code_of_another_user_is_wrong(user):
    codes = SecondFactor.make_codes(factories.user())
    SecondFactor.make_codes(user)

    assert not is_taken(user, codes[0])


def test_no_code_is_stored(user):
    codes = SecondFactor.make_codes(user)
    db.session.commit()

    stored = str(sql.snapshot())
    assert not [code for code in codes if code in stored]


# -- passkeys --------------------------------------------------------------------------------------


@pytest.fixture
def device():
    return Authenticator()


def added_to(user, device, name="phone"):
    challenge = token_bytes(32)
    options = passkeys.options_to_create(user.email, handle_of(user), challenge, [])
    SecondFactor.add_passkey(user, name, device.create(json.loads(options)), challenge)
    db.session.commit()


def use(device, of=None, challenge=None):
    challenge = challenge or token_bytes(32)
    answer = device.use(json.loads(passkeys.options_to_use(challenge, [])))
    return SecondFactor.use_passkey(answer, challenge, of)


def test_a_passkey_tells_whose_it_is(user, device):
    added_to(user, device)

    assert use(device) is user
    assert use(device, user) is user
    assert user.has_second_factor


def test_what_a_browser_is_asked_for(user, device):
    added_to(user, device)
    (mine,) = SecondFactor.of(user, "passkey")

    ids = [mine.credential_id]
    new = json.loads(passkeys.options_to_create(user.email, handle_of(user), b"x" * 32, ids))
    used = json.loads(passkeys.options_to_use(b"x" * 32, ids))

    assert new["rp"] == {"id": "localhost", "name": "Refine"}
    assert new["authenticatorSelection"]["userVerification"] == "required"
    assert new["authenticatorSelection"]["residentKey"] == "required"
    assert new["excludeCredentials"][0]["id"] == mine.credential_id
    assert user.email.encode() not in bytes.fromhex(handle_of(user))
    assert (used["rpId"], used["userVerification"]) == ("localhost", "required")


def test_the_passkey_of_another_user_is_refused(user, device):
    added_to(factories.user(), device)

    with pytest.raises(InvalidValue, match="not known"):
        use(device, user)
    with pytest.raises(InvalidValue, match="not known"):
        use(Authenticator())


def test_a_passkey_of_another_origin_challenge_or_key_is_refused(user, device):
    added_to(user, device)
    forger = Authenticator()
    forger.id = device.id
    elsewhere = [
        Authenticator("https://localhost:8000"),
        Authenticator("http://localhost.evil.example"),
    ]
    for each in elsewhere:
        each.id, each._key = device.id, device._key
    answer = device.use(json.loads(passkeys.options_to_use(token_bytes(32), [])))

    for each in (forger, *elsewhere):
        with pytest.raises(InvalidValue, match="not accepted"):
            use(each)
    with pytest.raises(InvalidValue, match="not accepted"):
        SecondFactor.use_passkey(answer, token_bytes(32))


@pytest.mark.parametrize(
    "answer", ["", "{}", "[]", '{"id": "x"}', "\x00", '{"id": 1, "rawId": "é"}']
)
def test_nonsense_is_no_passkey(user, answer):
    for read in (SecondFactor.use_passkey, lambda *of: SecondFactor.add_passkey(user, "x", *of)):
        with pytest.raises(InvalidValue):
            read(answer, token_bytes(32))


def test_a_passkey_must_have_checked_who_uses_it(user, device):
    added_to(user, device)
    device.flags = PRESENT
    with pytest.raises(InvalidValue, match="not accepted"):
        use(device)
    careless = Authenticator()
    careless.flags = PRESENT

    with pytest.raises(InvalidValue, match="not accepted"):
        added_to(user, careless)


def test_a_count_that_goes_back_is_refused_and_a_record(user, device):
    added_to(user, device)
    use(device)
    device.count -= 1

    with pytest.raises(InvalidValue, match="copied"):
        use(device)
    device.count = -1  # a copy that does not count
    with pytest.raises(InvalidValue, match="copied"):
        use(device)

    assert actions().count("passkey_refused") == 2


def test_passkeys_that_never_count_are_taken(user, device):
    device.count = -1
    added_to(user, device)

    for _ in range(2):
        device.count = -1
        assert use(device) is user


@pytest.mark.parametrize("ends", ["removed", "deactivated"])
def test_a_passkey_ends_with_its_removal_and_its_user(user, device, ends):
    added_to(user, device)
    if ends == "removed":
        SecondFactor.remove(user, SecondFactor.of(user, "passkey")[0].id)
    else:
        user.active = False

    with pytest.raises(InvalidValue, match="not known"):
        use(device)


def test_a_passkey_alone_is_no_way_round_the_provider_of_identities(user, device, set_setting):
    added_to(user, device)
    user.identity_hash = "of somebody there"
    set_setting(oidc_only=True)

    with pytest.raises(InvalidValue, match="not known"):
        use(device)
    assert use(device, user) is user


def test_a_passkey_moved_to_another_user_by_sql_is_found(user, device):
    added_to(factories.user(), device)
    sql.run(f"UPDATE second_factors SET user_id = {user.id}")
    db.session.expire_all()

    with pytest.raises(RowAltered):
        use(device)


def test_nobody_adds_the_passkey_of_another_user(user, device):
    added_to(factories.user(), device)

    forger = Authenticator()
    forger.id = device.id
    with pytest.raises(InvalidValue, match="known already"):
        added_to(user, forger)


def test_passkeys_have_short_plain_names(user, device):
    for name in ("", "x" * 41, "a\u200bb"):
        with pytest.raises(InvalidValue, match="name"):
            added_to(user, device, name)


@pytest.mark.parametrize(
    ("public", "host", "origin"),
    [
        ("https://refine.example.org", "refine.example.org", "https://refine.example.org"),
        ("https://host.example:443/refine", "host.example", "https://host.example"),
        ("http://host.example:8080/a", "host.example", "http://host.example:8080"),
    ],
)
def test_passkeys_are_bound_to_the_public_url_alone(app, monkeypatch, public, host, origin):
    settings = replace(app.extensions["refine.settings"], public_url=public)
    monkeypatch.setitem(app.extensions, "refine.settings", settings)

    assert passkeys.host_and_origin() == (host, origin)
    assert ORIGIN not in origin


# -- ending ----------------------------------------------------------------------------------------


def test_the_last_factor_takes_the_recovery_codes_with_it(user, device):
    key = confirmed_app(user)
    added_to(user, device)
    codes = SecondFactor.make_codes(user)
    app, passkey = SecondFactor.of(user, *FACTORS)

    SecondFactor.remove(user, app.id)
    still_has_one, is_code_left = user.has_second_factor, is_taken(user, codes[0])
    SecondFactor.remove(user, passkey.id)

    assert (still_has_one, is_code_left) == (True, True)
    assert not user.has_second_factor
    assert not is_taken(user, codes[1])
    assert not is_taken(user, factories.code_of(key, AT))
    assert actions().count("second_factor_removed") == 2
    db.session.commit()
    assert problems() == []


def test_what_was_never_theirs_cannot_be_removed(user):
    confirmed_app(factories.user())
    SecondFactor.make_codes(user)

    for other in db.session.scalars(select(SecondFactor)).all():
        with pytest.raises(NotFound):
            SecondFactor.remove(user, other.id)


def test_an_account_that_demands_one_keeps_the_last(user, device):
    confirmed_app(user)
    user.account.configure(user=user, second_factor_required=True)
    (app,) = SecondFactor.of(user, *FACTORS)

    with pytest.raises(Refused, match="demands a second factor"):
        SecondFactor.remove(user, app.id)
    added_to(user, device)
    SecondFactor.remove(user, app.id)

    assert user.has_second_factor


def test_a_reset_ends_everything_and_is_a_record(user, device):
    key = confirmed_app(user)
    added_to(user, device)
    codes = SecondFactor.make_codes(user)

    SecondFactor.reset(user, by=factories.user(account=user.account))

    assert SecondFactor.of(user, *KINDS) == []
    assert not is_taken(user, codes[0])
    assert not is_taken(user, factories.code_of(key, AT))
    assert not user.has_second_factor
    assert user.password_linked_at is not None
    assert actions()[-1] == "second_factors_reset"


def test_a_used_code_that_is_put_back_is_found(user):
    confirmed_app(user)
    codes = SecondFactor.make_codes(user)
    db.session.commit()
    sql.run("CREATE TABLE earlier AS SELECT * FROM second_factors WHERE kind = 'codes'")
    assert is_taken(user, codes[0])
    db.session.commit()

    found = problems(
        "UPDATE second_factors f SET code_hashes = e.code_hashes, row_digest = e.row_digest "
        "FROM earlier e WHERE e.id = f.id",
        "DROP TABLE earlier",
    )

    assert "does not match its last record" in " ".join(found)


def test_codes_are_random_enough(user):
    assert len(pyotp.random_base32()) == 32
    assert all(len(code) == 12 for code in SecondFactor.make_codes(user))
