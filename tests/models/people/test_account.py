from datetime import UTC, datetime, timedelta

import pytest

from refine.errors import InvalidValue, NotFound, Refused
from refine.extensions import db
from refine.models import Account
from tests import factories

MONDAY = datetime(2026, 3, 2, 4, tzinfo=UTC)
NEXT_MONDAY = MONDAY + timedelta(days=7)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Acme", "acme"),
        ("  Acme & Söhne, Ltd. ", "acme-s-hne-ltd"),
        ("Route 66", "route-66"),
        ("a" * 70, "a" * 60),
        ("a" * 59 + " b", "a" * 59),
    ],
)
def test_a_slug_is_made_of_the_letters_and_digits_of_a_name(name, slug):
    assert Account.slug_for(name) == slug
    with pytest.raises(InvalidValue, match="--slug"):
        Account.slug_for("日本 !")


def test_an_account_is_found_by_its_slug_whatever_its_case(app):
    account = factories.account(slug="acme")
    factories.account(slug="acme-2")

    assert Account.by_slug("acme") is account
    assert Account.by_slug("ACME") is account
    with pytest.raises(NotFound, match="'acm'"):
        Account.by_slug("acm")


def test_the_slug_of_the_demo_account_is_given_to_no_other(app):
    with pytest.raises(Refused, match="reserved for the demo account"):
        Account.create("Demo")


def test_an_invalid_field_is_refused(subtests):
    for field, message, values in [
        ("slug", "slug must be", ["", "Acme", "a--b", "-a", "a-", "a b", "ä", "a" * 61, 7, None]),
        ("name", "name", ["", " ", "two\nlines", "x" * 201, None]),
        ("time_zone", "time_zone", ["", "Nowhere", "../etc/passwd", None, 1]),
        (
            "schedule",
            "schedule",
            ["", "@weekly", "0 4 * *", "61 4 * * 1", "0 4 * * 1 *", 4],
        ),
    ]:
        for value in values:
            with (
                subtests.test(field=field, value=value),
                pytest.raises(InvalidValue, match=message),
            ):
                Account(**{"name": "Acme", "slug": "acme", field: value})


def test_a_new_account_keeps_its_data_with_zero_retention_and_runs(app):
    account = factories.account()

    assert account.zero_data_retention is True
    assert account.paused is False
    assert account.monthly_cost_cap_usd is None


# -- the slots of all accounts ---------------------------------------------------------------------


def made(at=MONDAY - timedelta(seconds=1), **fields):
    """An account that was made at an instant."""
    return factories.account(created_at=at, **fields)


def rescheduled(account, at):
    Account.set_slots(at)
    db.session.flush()
    db.session.refresh(account)
    return account.next_due_at


@pytest.mark.parametrize(
    ("made_at", "at", "slot"),
    [
        (MONDAY - timedelta(seconds=1), MONDAY - timedelta(seconds=1), MONDAY),
        (MONDAY - timedelta(seconds=1), MONDAY + timedelta(days=1), MONDAY),
        (MONDAY, MONDAY, NEXT_MONDAY),
    ],
)
def test_the_first_slot_is_the_first_after_the_account_was_made(app, made_at, at, slot):
    assert rescheduled(made(made_at), at) == slot


def test_each_accounts_next_slot_follows_its_schedule_and_zone(app):
    usual = made(MONDAY)
    tokyo = made(MONDAY, time_zone="Asia/Tokyo")
    daily = made(MONDAY, schedule="30 6 * * *")
    daily_in_tokyo = made(MONDAY, schedule="30 6 * * *", time_zone="Asia/Tokyo")
    accounts = (usual, tokyo, daily, daily_in_tokyo)

    slots = [rescheduled(account, MONDAY) for account in accounts]

    assert slots == [
        NEXT_MONDAY,
        NEXT_MONDAY - timedelta(hours=9),
        MONDAY + timedelta(hours=2, minutes=30),
        MONDAY + timedelta(hours=17, minutes=30),
    ]


@pytest.mark.parametrize(
    ("change", "following"),
    [
        ({"schedule": "0 5 * * 1"}, MONDAY + timedelta(hours=1)),
        ({"schedule": "0 4 * * 2"}, MONDAY + timedelta(days=1)),
        ({"schedule": "0 3 * * 1"}, NEXT_MONDAY - timedelta(hours=1)),
        ({"time_zone": "America/New_York"}, MONDAY + timedelta(hours=5)),
        ({"time_zone": "Asia/Tokyo"}, NEXT_MONDAY - timedelta(hours=9)),
    ],
    ids=["later", "another day", "earlier", "west", "east"],
)
def test_the_next_slot_follows_a_change_of_schedule_or_zone(app, change, following):
    at = MONDAY - timedelta(minutes=30)
    account = made(at)
    rescheduled(account, at)

    for name, value in change.items():
        setattr(account, name, value)

    assert rescheduled(account, at) == following


def test_the_next_slot_follows_a_change_of_the_platforms_schedule(set_setting):
    without, with_its_own = made(MONDAY), made(MONDAY, schedule="0 4 * * 1")
    rescheduled(without, MONDAY)

    set_setting(schedule="0 12 * * *")

    assert rescheduled(without, MONDAY) == MONDAY + timedelta(hours=8)
    assert rescheduled(with_its_own, MONDAY) == NEXT_MONDAY


@pytest.mark.parametrize("late", [timedelta(0), timedelta(minutes=3), timedelta(days=20)])
def test_a_slot_that_has_come_stays_until_it_is_run(app, late):
    account = factories.account(next_due_at=MONDAY)

    account.schedule = "0 4 * * 2"

    assert rescheduled(account, MONDAY + late) == MONDAY


@pytest.mark.parametrize("change", [{"schedule": "0 4 * * 2"}, {"time_zone": "America/New_York"}])
def test_a_slot_that_has_come_stays_though_an_admin_moves_the_next_one(app, change):
    account = factories.account(next_due_at=MONDAY)
    admin = factories.user(account=account)

    account.configure(user=admin, at=MONDAY - timedelta(seconds=1), **change)
    moved = account.next_due_at
    account.next_due_at = MONDAY
    account.configure(user=admin, at=MONDAY, schedule="0 4 * * 3", time_zone="UTC")

    assert moved != MONDAY
    assert account.next_due_at == MONDAY


@pytest.mark.parametrize(
    ("next_due_at", "at", "slot"),
    [
        (MONDAY, MONDAY, MONDAY),
        (MONDAY, MONDAY + timedelta(days=6), MONDAY),
        (MONDAY, MONDAY + timedelta(days=20), MONDAY + timedelta(days=14)),
        (MONDAY + timedelta(days=1), MONDAY + timedelta(days=2), MONDAY + timedelta(days=1)),
        (None, MONDAY + timedelta(days=1), MONDAY),
    ],
    ids=["on time", "late", "several missed", "of another schedule", "never set"],
)
def test_the_slot_to_serve_is_the_last_that_came(app, next_due_at, at, slot):
    account = factories.account(next_due_at=next_due_at)

    assert account.slot_to_serve(at) == slot


def test_accounts_are_due_from_the_instant_of_their_slot_the_longest_waiting_first(app):
    on_time = factories.account(next_due_at=MONDAY)
    factories.account(next_due_at=MONDAY + timedelta(microseconds=1))
    waiting = factories.account(next_due_at=MONDAY - timedelta(days=1), paused=True)
    factories.account()
    as_long = factories.account(next_due_at=MONDAY)

    assert Account.due(MONDAY) == [waiting, on_time, as_long]
