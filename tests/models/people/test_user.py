import pytest
from argon2 import PasswordHasher

from refine.errors import Ambiguous, InvalidValue, NotFound, Refused
from refine.extensions import db
from refine.models import User
from refine.models.people.user import DUMMY_PASSWORD_HASH, MAX_VIEWS, SavedView
from tests import factories
from tests.factories import PASSWORD


@pytest.fixture
def account(app):
    return factories.account()


def test_a_user_is_found_by_address_whatever_its_case(account):
    user = factories.user(email="Ada@Example.org", account=account)

    assert User.by_email(" ADA@example.ORG ") is user
    assert User.by_email("eve@example.org") is None
    assert user.email == "ada@example.org"


def test_a_user_is_found_by_address_or_id(account):
    user = factories.user(email="ada@example.org", account=account)
    joined = factories.user(email="twin@example.org")
    invited = User.invite(account, "twin@example.org", role="viewer", by=user)

    assert User.named("Ada@example.org") is user
    assert User.named(str(user.id)) is user
    with pytest.raises(Ambiguous, match=f": {joined.id}, {invited.id}$"):
        User.named("twin@example.org")
    with pytest.raises(NotFound, match="'999'"):
        User.named("999")


def test_a_user_is_registered_once_with_a_password_kept_as_an_argon2id_hash(account):
    user = User.register(account, "ada@example.org", PASSWORD, role="viewer", by="test")
    db.session.flush()

    assert user.has_password(PASSWORD)
    assert not user.has_password(PASSWORD.upper())
    assert user.password_hash.startswith("$argon2id$")
    assert PASSWORD not in user.password_hash
    assert (user.account, user.role) == (account, "viewer")
    assert (user.active, user.site_admin) == (True, False)
    with pytest.raises(Refused, match="already a user"):
        User.register(account, "ADA@example.org", PASSWORD, by="test")


def test_checking_a_password_takes_as_long_for_an_unknown_user():
    assert not PasswordHasher().check_needs_rehash(DUMMY_PASSWORD_HASH)


@pytest.mark.parametrize("stored", [None, "", "not a hash"])
def test_a_user_without_a_hash_has_no_password(account, stored):
    assert not User(account=account, email="ada@example.org", password_hash=stored).has_password("")


def test_a_password_has_10_to_1000_characters(account):
    user = factories.user(account=account)

    for length in (10, 1_000):
        user.set_password("x" * length)
        assert user.has_password("x" * length)
    for length in (9, 1_001):
        with pytest.raises(InvalidValue, match="10 to 1,000"):
            user.set_password("x" * length)
    assert user.has_password("x" * 1_000)


def test_an_invalid_address_or_role_is_refused(subtests):
    emails = (
        *("", "ada", "@example.org", "ada@", "a da@example.org", "a\n@b.c", 7),
        *("important_note:i_promised_ada@x.test", '"to ada"@x.test', "a@b@c.test", "a/b@x.test"),
        *("ä@x.test", "a@ä.test", "a@b..c", "a@-b.c", "a@b_c.test", f"a@{'b' * 64}.c"),
        *("x" * 65 + "@b", "a@" + "b." * 126 + "cc"),
    )
    for field, message, values in [
        ("email", "email", emails),
        ("role", "admin, viewer", ("owner", "", "Admin", None)),
    ]:
        for value in values:
            with (
                subtests.test(field=field, value=value),
                pytest.raises(InvalidValue, match=message),
            ):
                User(**{field: value})


def test_a_saved_view_replaces_one_of_its_name_and_twenty_are_the_most(app):
    user = factories.user()
    db.session.flush()

    for number in range(MAX_VIEWS):
        user.save_view(SavedView("agents.listing", str(number), ""))
    user.save_view(SavedView("agents.listing", "0", "state=over"))

    with pytest.raises(Refused, match="at most 20 views"):
        user.save_view(SavedView("agents.listing", "one more", ""))
    assert user.views[-1] == SavedView("agents.listing", "0", "state=over")
    user.delete_view(user.views[-1])
    assert len(user.views) == MAX_VIEWS - 1
