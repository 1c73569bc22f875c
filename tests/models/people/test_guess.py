"""Guesses at passwords that are counted, by user and address together."""

from datetime import UTC, datetime, timedelta

import pytest

from refine.errors import TooMany
from refine.models import PasswordGuess
from refine.models.people.sign_in import (
    GUESS_WINDOW,
    MAX_GUESSES,
    MAX_GUESSES_OF_ADDRESS,
    network_of,
)
from tests import sql

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
A_MOMENT = timedelta(seconds=1)
ADA, EVE = "ada@example.org", "eve@example.org"
HERE, THERE = "192.0.2.1", "198.51.100.7"


def guesses(number, email=ADA, address=HERE, at=AT, **known):
    for each in range(number):
        PasswordGuess(email.format(each), address, **known).count(at)


def seconds_to_wait(email=ADA, address=HERE, at=AT, **known):
    try:
        PasswordGuess(email, address, **known).count(at)
    except TooMany as refusal:
        return refusal.retry_after_seconds
    return 0


def test_the_eleventh_guess_at_a_user_from_an_address_is_refused(app):
    guesses(MAX_GUESSES)

    assert MAX_GUESSES == 10
    assert seconds_to_wait(" ADA@example.org ") == 900
    assert seconds_to_wait(EVE) == 0
    assert seconds_to_wait(address=THERE) == 0


def test_the_hundred_and_first_guess_from_an_address_is_refused(app):
    guesses(MAX_GUESSES_OF_ADDRESS, "user{}@example.org")

    assert MAX_GUESSES_OF_ADDRESS == 100
    assert seconds_to_wait() == 900
    assert seconds_to_wait(address=THERE) == 0


def test_a_signed_in_browser_may_not_guess_more_often_from_many_addresses(app):
    for each in range(MAX_GUESSES):
        guesses(1, address=f"192.0.2.{each}", sign_in_id=7)

    assert seconds_to_wait(address=THERE, sign_in_id=7) == 900
    assert seconds_to_wait(address=THERE, sign_in_id=8) == 0


def test_a_right_password_is_not_counted(app):
    for _ in range(3 * MAX_GUESSES):
        guess = PasswordGuess(ADA, HERE)
        guess.count(AT)
        guess.uncount(AT)

    assert seconds_to_wait() == 0


def test_a_right_password_takes_back_no_guess_of_somebody_else(app):
    guesses(MAX_GUESSES, EVE)
    PasswordGuess(ADA, HERE).count(AT)
    PasswordGuess(ADA, HERE).uncount(AT)

    assert seconds_to_wait(EVE) == 900


@pytest.mark.parametrize(("later", "wait"), [(GUESS_WINDOW - A_MOMENT, 1), (GUESS_WINDOW, 0)])
def test_guesses_count_for_fifteen_minutes(app, later, wait):
    guesses(MAX_GUESSES)

    assert timedelta(minutes=15) == GUESS_WINDOW
    assert seconds_to_wait(at=AT + later) == wait


def test_an_ipv6_address_counts_as_its_network():
    assert (
        network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    )
    assert network_of("2001:db8:1:3::9") != network_of("2001:db8:1:2::9")
    assert network_of("::ffff:192.0.2.1") == HERE
    assert network_of("?") == "?"


def test_neither_address_is_stored_in_plain_text(app):
    guesses(1)

    assert sql.value("SELECT count(*) FROM shared_counts") == 0, "the caller commits"
    app.extensions["sqlalchemy"].session.commit()
    assert sql.value("SELECT count(*) FROM shared_counts") == 2
    assert not any(text in str(sql.snapshot()) for text in (ADA, HERE))
