"""Sign-ins that last and end."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from refine.extensions import db
from refine.models import AuditLog, SignIn
from refine.models.people.sign_in import CONFIRMED_FOR, IDLE_FOR, LASTS_FOR
from tests import factories, sql
from tests.models.cases import case

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
A_MOMENT = timedelta(seconds=1)


@pytest.fixture
def user(app):
    return factories.user()


@pytest.fixture
def begun(user):
    return SignIn.begin(user, AT)


def test_a_sign_in_is_found_by_its_secret(begun, user):
    found = SignIn.find_valid(begun.secret, AT)

    assert found is begun
    assert found.user is user
    assert found.get_id() == begun.secret


def test_an_unpassword_known_finds_no_sign_in(begun):
    assert SignIn.find_valid(begun.secret + "x", AT) is None
    assert SignIn.find_valid(begun.secret_hash, AT) is None
    assert SignIn.find_valid("", AT) is None


def test_an_ended_sign_in_or_one_of_an_inactive_user_is_not_found(begun, user, subtests):
    for why, end in {
        "ended": lambda: begun.end(AT),
        "user": lambda: setattr(user, "active", False),
    }.items():
        with case(subtests, why=why):
            end()
            assert SignIn.find_valid(begun.secret, AT) is None


@pytest.mark.parametrize(("later", "lasts"), [(IDLE_FOR - A_MOMENT, True), (IDLE_FOR, False)])
def test_an_unused_sign_in_ends_after_twelve_hours(begun, later, lasts):
    assert timedelta(hours=12) == IDLE_FOR
    assert (SignIn.find_valid(begun.secret, AT + later) is not None) is lasts


def test_a_used_sign_in_lasts_at_most_seven_days(begun):
    hours = range(10, 7 * 24, 10)

    found = [SignIn.find_valid(begun.secret, AT + timedelta(hours=each)) for each in hours]

    assert all(found)
    assert timedelta(days=7) == LASTS_FOR
    assert SignIn.find_valid(begun.secret, AT + LASTS_FOR - A_MOMENT) is begun
    assert SignIn.find_valid(begun.secret, AT + LASTS_FOR) is None


def test_its_use_is_noted_once_a_minute(begun):
    SignIn.find_valid(begun.secret, AT + timedelta(seconds=59))
    soon = begun.last_seen_at
    SignIn.find_valid(begun.secret, AT + timedelta(seconds=60))

    assert (soon, begun.last_seen_at) == (AT, AT + timedelta(seconds=60))


def test_all_of_a_user_end(begun, user):
    other, others = SignIn.begin(user, AT), SignIn.begin(factories.user(), AT)

    SignIn.end_all_of(user, at=AT)

    assert SignIn.find_valid(begun.secret, AT) is None
    assert SignIn.find_valid(other.secret, AT) is None
    assert SignIn.find_valid(others.secret, AT) is others


def test_an_altered_one_keeps_no_others_from_ending(begun, user):
    other = SignIn.begin(user, AT)
    db.session.commit()
    sql.run(f"UPDATE sign_ins SET confirmed_at = now() WHERE id = {begun.id}")
    db.session.expire_all()

    with capture_logs() as lines:
        SignIn.end_all_of(user, at=AT)
    db.session.commit()

    assert [SignIn.find_valid(each.secret, AT) for each in (begun, other)] == [None, None]
    assert [(line["event"], line["row"]) for line in lines] == [
        ("a row was altered", f"SignIn {begun.id}")
    ]


def test_it_ends_once(begun, user):
    begun.end(AT)
    begun.end(AT + A_MOMENT)
    SignIn.end_all_of(user, at=AT + A_MOMENT)

    ends = select(AuditLog).filter_by(action="sign_in_ended")
    assert begun.ended_at == AT
    assert [record.created_at for record in db.session.scalars(ends)] == [AT]


def test_the_open_ones_are_those_that_work_the_last_used_first(user):
    old, ended = SignIn.begin(user, AT - LASTS_FOR), SignIn.begin(user, AT)
    idle, first = SignIn.begin(user, AT - IDLE_FOR), SignIn.begin(user, AT - timedelta(hours=2))
    second, _other = SignIn.begin(user, AT - timedelta(hours=1)), SignIn.begin(factories.user(), AT)
    old.last_seen_at = AT
    ended.end(AT)
    first.last_seen_at = AT
    db.session.commit()

    assert SignIn.open_of(user, AT) == [first, second]
    assert [SignIn.find_valid(each.secret, AT) is each for each in (idle, first)] == [False, True]


def test_an_altered_one_is_not_listed(begun, user):
    db.session.commit()
    sql.run("UPDATE sign_ins SET confirmed_at = now()")
    db.session.expire_all()

    assert SignIn.open_of(user, AT) == []


def test_ending_all_but_one_counts_those_that_worked(user):
    kept, _expired = SignIn.begin(user, AT), SignIn.begin(user, AT - LASTS_FOR)
    others = [SignIn.begin(user, AT) for _ in range(2)]

    ended = SignIn.end_all_of(user, at=AT, but=kept)

    assert ended == len(others)
    assert SignIn.open_of(user, AT) == [kept]
    assert SignIn.end_all_of(user, at=AT) == 1


def test_it_keeps_a_word_for_the_browser_and_how_somebody_signed_in(user):
    user.client = {"address": "192.0.2.7", "browser": "Mozilla/5.0 Secret Firefox/150.0"}

    begun = SignIn.begin(user, AT, way="oidc", confirmed_at=AT - CONFIRMED_FOR)

    assert (begun.browser, begun.way, begun.is_confirmed(AT)) == ("Firefox", "oidc", False)
    renewed = begun.renewed(AT, confirmed_at=AT)
    assert (renewed.browser, renewed.way, renewed.is_confirmed(AT)) == ("Firefox", "oidc", True)
