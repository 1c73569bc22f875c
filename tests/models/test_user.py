import pytest
from argon2 import PasswordHasher

from refine.errors import InvalidValue, Refused
from refine.extensions import db
from refine.models import User
from refine.models.people.user import DUMMY_PASSWORD_HASH
from tests import factories
from tests.factories import PASSWORD


def test_a_user_is_found_by_address_whatever_its_case(app):
    user = factories.user(email="Ada@Example.org")

    found = User.by_email(" ADA@example.ORG ")

    assert found is user
    assert user.email == "ada@example.org"


def test_an_address_that_nobody_has_finds_nobody(app):
    factories.user(email="ada@example.org")

    assert User.by_email("eve@example.org") is None


def test_a_registered_user_signs_in_with_the_password(app):
    account = factories.account()

    user = User.register(account, "ada@example.org", PASSWORD, role="viewer")
    db.session.flush()

    assert user.has_password(PASSWORD)
    assert (user.account, user.role, user.active, user.site_admin) == (
        account,
        "viewer",
        True,
        False,
    )


def test_an_address_is_registered_once_whatever_its_case(app):
    account = factories.account()
    User.register(account, "ada@example.org", PASSWORD)
    db.session.flush()

    with pytest.raises(Refused, match="already a user"):
        User.register(account, "ADA@example.org", PASSWORD)


def test_a_password_is_kept_as_an_argon2id_hash(app):
    user = factories.user()

    assert user.password_hash.startswith("$argon2id$")
    assert PASSWORD not in user.password_hash


def test_a_password_is_checked_for_as_long_where_there_is_no_such_user():
    assert not PasswordHasher().check_needs_rehash(DUMMY_PASSWORD_HASH)


def test_another_password_is_not_the_users(app):
    user = factories.user()

    assert not user.has_password(PASSWORD.upper())


@pytest.mark.parametrize("stored", [None, "", "not a hash"])
def test_a_user_without_a_hash_has_no_password(app, stored):
    user = User(account=factories.account(), email="ada@example.org", password_hash=stored)

    assert not user.has_password("")


@pytest.mark.parametrize("length", [9, 1_001])
def test_a_password_of_another_length_is_refused_and_the_old_one_stays(app, length):
    user = factories.user()

    with pytest.raises(InvalidValue, match="10 to 1,000"):
        user.set_password("x" * length)

    assert user.has_password(PASSWORD)


@pytest.mark.parametrize("length", [10, 1_000])
def test_a_password_may_have_10_to_1000_characters(app, length):
    user = factories.user()

    user.set_password("x" * length)

    assert user.has_password("x" * length)


@pytest.mark.parametrize(
    "email", ["", "ada", "@example.org", "ada@", "a da@example.org", "a\n@b.c", "x" * 254 + "@b", 7]
)
def test_what_is_no_address_is_refused(app, email):
    with pytest.raises(InvalidValue, match="email"):
        User(email=email)


@pytest.mark.parametrize("role", ["owner", "", "Admin", None])
def test_an_unknown_role_is_refused(app, role):
    with pytest.raises(InvalidValue, match="admin, viewer"):
        User(role=role)
