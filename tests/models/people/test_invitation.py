"""One-time links by which people join."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from refine.errors import InvalidValue, Refused, RowAltered
from refine.extensions import db
from refine.models import Invitation
from refine.models.people.invitation import VALID_FOR
from tests import factories, sql
from tests.factories import PASSWORD

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def user(app):
    made = factories.user()
    made.password_hash = None
    return made


@pytest.fixture
def secret(user):
    return Invitation.issue(user, AT)


def test_a_link_leads_to_its_user(user, secret):
    assert Invitation.by_secret(secret, AT).user is user


@pytest.mark.parametrize(
    ("later", "is_open"), [(VALID_FOR - timedelta(seconds=1), True), (VALID_FOR, False)]
)
def test_a_link_is_good_for_seven_days(secret, later, is_open):
    assert timedelta(days=7) == VALID_FOR
    assert (Invitation.by_secret(secret, AT + later) is not None) is is_open


def test_a_link_is_good_once(user, secret):
    accepted = Invitation.by_secret(secret, AT).accept(PASSWORD, AT)

    assert accepted is user
    assert user.has_password(PASSWORD)
    assert Invitation.by_secret(secret, AT) is None


def test_an_invalid_password_does_not_use_up_the_link(secret):
    with pytest.raises(InvalidValue):
        Invitation.by_secret(secret, AT).accept("short", AT)

    assert Invitation.by_secret(secret, AT) is not None


def test_a_newer_link_ends_only_that_users_older_ones(user, secret):
    others = Invitation.issue(factories.user(), AT)

    newer = Invitation.issue(user, AT)

    assert Invitation.by_secret(secret, AT) is None
    assert Invitation.by_secret(newer, AT) is not None
    assert Invitation.by_secret(others, AT) is not None


def test_accepting_a_link_ends_every_other_link_of_the_user(user, secret):
    used = db.session.scalars(select(Invitation)).one()
    newer = Invitation.issue(user, AT)

    used.accept(PASSWORD, AT)

    assert Invitation.by_secret(newer, AT) is None


def test_a_link_that_was_altered_keeps_no_other_from_ending(user, secret):
    link = db.session.scalars(select(Invitation)).one()
    db.session.commit()
    sql.run("UPDATE invitations SET expires_at = now() + interval '1 year'")
    db.session.expire_all()

    with capture_logs() as lines:
        newer = Invitation.issue(user, AT)

    assert [line["row"] for line in lines] == [f"Invitation {link.id}"]
    assert link.used_at is None
    assert Invitation.by_secret(newer, AT).accept(PASSWORD, AT) is user
    with pytest.raises(RowAltered):
        Invitation.by_secret(secret, AT)


def test_a_link_of_an_inactive_user_leads_nowhere(user, secret):
    user.active = False

    assert Invitation.by_secret(secret, AT) is None
    with pytest.raises(Refused, match="is not active"):
        Invitation.issue(user, AT)
