from datetime import UTC, datetime

import pytest

from refine.errors import InvalidValue, NotFound
from refine.models import Account
from tests import factories

MONDAY = datetime(2026, 3, 2, 4, tzinfo=UTC)


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


def test_a_name_without_letters_or_digits_makes_no_slug():
    with pytest.raises(InvalidValue, match="--slug"):
        Account.slug_for("日本 !")


def test_an_account_is_found_by_its_slug(app):
    account = factories.account(slug="acme")
    factories.account(slug="acme-2")

    found = Account.by_slug("acme")

    assert found is account


def test_an_unknown_slug_is_not_found(app):
    factories.account(slug="acme")

    with pytest.raises(NotFound, match="'acm'"):
        Account.by_slug("acm")


@pytest.mark.parametrize("slug", ["", "Acme", "a--b", "-a", "a-", "a b", "ä", "a" * 61, 7, None])
def test_a_slug_that_breaks_the_rule_is_refused(app, slug):
    with pytest.raises(InvalidValue, match="slug must be"):
        Account(name="Acme", slug=slug)


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "x" * 201, None])
def test_a_name_is_one_line(app, name):
    with pytest.raises(InvalidValue, match="name"):
        Account(name=name, slug="acme")


@pytest.mark.parametrize("zone", ["", "Nowhere", "../etc/passwd", None, 1])
def test_an_unknown_time_zone_is_refused(app, zone):
    with pytest.raises(InvalidValue, match="time_zone"):
        Account(name="Acme", slug="acme", time_zone=zone)


@pytest.mark.parametrize("schedule", ["", "@weekly", "0 4 * *", "61 4 * * 1", "0 4 * * 1 *", 4])
def test_a_bad_schedule_is_refused(app, schedule):
    with pytest.raises(InvalidValue, match="schedule"):
        Account(name="Acme", slug="acme", schedule=schedule)


def test_without_a_schedule_of_its_own_an_account_has_the_platforms(app):
    account = factories.account(schedule=None)

    slot = account.next_slot(MONDAY)

    assert account.effective_schedule == "0 4 * * 1"
    assert slot == datetime(2026, 3, 9, 4, tzinfo=UTC)


def test_slots_follow_the_accounts_schedule_in_its_zone(app):
    account = factories.account(schedule="30 6 * * 2", time_zone="Europe/Berlin")

    last, following = account.last_slot(MONDAY), account.next_slot(MONDAY)

    assert last == datetime(2026, 2, 24, 5, 30, tzinfo=UTC)
    assert following == datetime(2026, 3, 3, 5, 30, tzinfo=UTC)


def test_a_slot_counts_as_the_last_one_from_its_very_instant(app):
    account = factories.account()

    assert account.last_slot(MONDAY) == MONDAY


def test_a_new_account_keeps_its_data_with_zero_retention_and_runs(app):
    account = factories.account()

    assert account.zero_data_retention is True
    assert account.paused is False
    assert account.monthly_cost_cap_usd is None
