"""Sign-ins that last and end, and failures that count."""

from datetime import UTC, datetime, timedelta

import pytest

from refine.errors import TooMany
from refine.extensions import db
from refine.models import SignIn, SignInFailure
from refine.models.people.sign_in import (
    FAILURES_COUNT_FOR,
    IDLE_FOR,
    LASTS_FOR,
    MAX_FAILURES_OF_ADDRESS,
    MAX_FAILURES_OF_EMAIL,
)
from tests import factories, sql

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
A_MOMENT = timedelta(seconds=1)


@pytest.fixture
def user(app):
    return factories.user()


@pytest.fixture
def begun(user):
    return SignIn.begin(user, AT)


def test_a_sign_in_is_found_by_its_secret(begun, user):
    found = SignIn.live(begun.secret, AT)

    assert found is begun
    assert found.user is user
    assert found.get_id() == begun.secret


def test_two_sign_ins_of_a_user_have_secrets_of_their_own(begun, user):
    assert SignIn.begin(user, AT).secret != begun.secret


def test_another_secret_finds_none(begun):
    assert SignIn.live(begun.secret + "x", AT) is None
    assert SignIn.live(begun.secret_hash, AT) is None
    assert SignIn.live("", AT) is None


def test_the_secret_is_not_stored(begun):
    secret = begun.secret
    db.session.commit()

    assert secret not in str(sql.snapshot())


def test_one_that_ended_is_found_no_more(begun):
    begun.end(AT)

    assert SignIn.live(begun.secret, AT) is None


def test_one_of_an_inactive_user_is_found_no_more(begun, user):
    user.active = False

    assert SignIn.live(begun.secret, AT) is None


@pytest.mark.parametrize(("later", "lasts"), [(IDLE_FOR - A_MOMENT, True), (IDLE_FOR, False)])
def test_one_that_is_not_used_ends_after_twelve_hours(begun, later, lasts):
    assert timedelta(hours=12) == IDLE_FOR
    assert (SignIn.live(begun.secret, AT + later) is not None) is lasts


def test_one_that_is_used_lasts_on_but_not_longer_than_seven_days(begun):
    hours = range(10, 7 * 24, 10)

    found = [SignIn.live(begun.secret, AT + timedelta(hours=each)) for each in hours]

    assert all(found)
    assert timedelta(days=7) == LASTS_FOR
    assert SignIn.live(begun.secret, AT + LASTS_FOR - A_MOMENT) is begun
    assert SignIn.live(begun.secret, AT + LASTS_FOR) is None


def test_its_use_is_noted_once_a_minute(begun):
    SignIn.live(begun.secret, AT + timedelta(seconds=59))
    soon = begun.last_seen_at
    SignIn.live(begun.secret, AT + timedelta(seconds=60))

    assert (soon, begun.last_seen_at) == (AT, AT + timedelta(seconds=60))


def test_all_of_a_user_end_but_one(begun, user):
    other, others = SignIn.begin(user, AT), SignIn.begin(factories.user(), AT)

    SignIn.end_all(user, except_for=begun, at=AT)

    assert SignIn.live(begun.secret, AT) is begun
    assert SignIn.live(other.secret, AT) is None
    assert SignIn.live(others.secret, AT) is others


def test_all_of_a_user_end(begun, user):
    SignIn.end_all(user, at=AT)

    assert SignIn.live(begun.secret, AT) is None


def test_an_end_stays_when_it_was(begun, user):
    begun.end(AT)

    SignIn.end_all(user, at=AT + A_MOMENT)

    db.session.refresh(begun)
    assert begun.ended_at == AT


# -- failures --------------------------------------------------------------------------------------


def failed(number, email="ada@example.org", address="10.0.0.1", at=AT):
    for each in range(number):
        SignInFailure.note(email.format(each), address, at)


def refuses(email="ada@example.org", address="10.0.0.9", at=AT):
    try:
        SignInFailure.refuse_too_many(email, address, at)
    except TooMany as refusal:
        return refusal.retry_after_seconds == 900
    return False


@pytest.mark.parametrize(
    ("number", "is_refused"), [(MAX_FAILURES_OF_EMAIL - 1, False), (MAX_FAILURES_OF_EMAIL, True)]
)
def test_ten_failures_are_too_many_for_an_e_mail(app, number, is_refused):
    failed(number)

    assert MAX_FAILURES_OF_EMAIL == 10
    assert refuses(" ADA@example.org") is is_refused
    assert not refuses("eve@example.org")


@pytest.mark.parametrize(
    ("number", "is_refused"),
    [(MAX_FAILURES_OF_ADDRESS - 1, False), (MAX_FAILURES_OF_ADDRESS, True)],
)
def test_a_hundred_failures_are_too_many_for_an_address(app, number, is_refused):
    failed(number, email="user{}@example.org")

    assert MAX_FAILURES_OF_ADDRESS == 100
    assert refuses(address="10.0.0.1") is is_refused
    assert not refuses(address="10.0.0.2")


@pytest.mark.parametrize(
    ("later", "counts"), [(FAILURES_COUNT_FOR - A_MOMENT, True), (FAILURES_COUNT_FOR, False)]
)
def test_failures_count_for_fifteen_minutes(app, later, counts):
    failed(10)

    assert timedelta(minutes=15) == FAILURES_COUNT_FOR
    assert refuses(at=AT + later) is counts


def test_failures_that_count_no_more_are_forgotten(app):
    failed(3)

    failed(1, at=AT + FAILURES_COUNT_FOR + A_MOMENT)

    assert db.session.scalar(db.select(db.func.count()).select_from(SignInFailure)) == 1
