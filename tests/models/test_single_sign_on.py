"""Who is let in for whom a provider of identities vouches, and what that ends."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from refine.errors import Refused, RowAltered
from refine.extensions import db
from refine.models import AccessGrant, AuditLog, Invitation, SignIn, User
from refine.models.locking import lock
from refine.models.single_sign_on import Identity
from tests import factories, sql
from tests.chains import problems

ISSUER = "https://id.example.org"


@pytest.fixture
def account(app):
    return factories.account(slug="acme")


def identity(role="admin", *, subject="7", email="ada@example.org", **fields):
    roles = {"acme": role} if role is not None else {}
    return Identity(
        **{"issuer": ISSUER, "subject": subject, "email": email, "roles": roles} | fields
    )


@pytest.fixture
def linking(set_setting):
    set_setting(oidc_link=True)


def records(action):
    return db.session.scalars(select(AuditLog).where(AuditLog.action == action)).all()


def test_the_first_sign_in_makes_a_user_in_the_account_that_the_claim_names(account):
    user = identity().admit()
    db.session.commit()

    assert (user.email, user.account, user.role) == ("ada@example.org", account, "admin")
    assert (user.takes_password, user.site_admin) == (False, False)
    (record,) = records("user_created")
    assert record.data == {"role": "admin", "site_admin": False, "by": "identity provider"}
    assert identity(email=None).admit() is user
    assert problems() == []


def test_a_password_link_gives_somebody_new_a_password(account):
    user = identity().admit()

    Invitation.by_secret(Invitation.issue(user)).accept(factories.PASSWORD)

    assert User.with_password(user.email, factories.PASSWORD) is user


def test_somebody_new_may_not_ask_for_access_for_a_day(account):
    agent = factories.agent(account=account)

    user = identity().admit()

    assert "began to sign in at the provider" in AccessGrant.refusal_reason(agent, user)
    user.password_linked_at -= timedelta(hours=25)
    assert AccessGrant.refusal_reason(agent, user) is None


def test_nobody_is_known_by_another_subject_or_issuer(account):
    user = identity().admit()

    others = [identity(subject="8"), identity(issuer="https://evil.example.org")]

    assert not any(each.is_of(user) for each in others)
    assert identity().is_of(user)
    assert not identity().is_of(factories.user())
    for other in others:  # though they claim the address, verified
        with pytest.raises(Refused, match="is already a user"):
            other.admit()


def test_who_is_not_let_in(account, subtests):
    factories.user(account=account, email="taken@example.org")
    factories.account(slug="other")
    User.invite(account, "invited@example.org", role="admin", by=factories.user(account=account))
    db.session.commit()
    before = sql.snapshot()

    for who, why in (
        (identity(email=None), "has not verified"),
        (identity(None), "a role in one account"),
        (identity(roles={"acme": "admin", "other": "admin"}), "a role in one account"),
        (identity(roles={"nowhere": "admin"}), "does not exist"),
        (identity(email="taken@example.org"), "is already a user"),
        (identity(email="invited@example.org"), "is already a user"),
    ):
        with subtests.test(why=why), pytest.raises(Refused, match=why):
            who.admit()
        db.session.rollback()
    assert sql.snapshot() == before


def test_a_locked_account_is_joined_by_nobody_and_a_locked_user_stays_out(account):
    user = identity().admit()
    db.session.commit()

    lock(account, "incident", None)

    with pytest.raises(Refused, match="is locked"):
        identity(subject="8", email="new@example.org").admit()
    with pytest.raises(Refused, match="is not active"):
        identity().admit()
    assert user.active is False


def test_a_role_that_the_claim_no_longer_gives_is_taken(account):
    user = identity().admit()
    user.password_linked_at = None
    grant = factories.live_grant(factories.agent(account=account), user)
    invited = User.invite(account, "new@example.org", role="viewer", by=user)
    link, begun = Invitation.issue(invited, by=user), SignIn.begin(user)
    db.session.commit()

    assert identity("viewer").admit() is user
    db.session.commit()

    assert (user.role, grant.status, Invitation.by_secret(link)) == ("viewer", "ended", None)
    assert SignIn.find_valid(begun.secret) is begun
    assert records("user_updated")[-1].data["by"] == "identity provider"
    assert problems() == []


def test_without_a_role_in_their_account_nobody_stays_signed_in(account):
    user = identity().admit()
    begun = SignIn.begin(user)
    factories.account(slug="other")

    for roles in ({}, {"other": "admin"}):
        with pytest.raises(Refused, match="gives you no role in"):
            identity(roles=roles).admit()

    db.session.commit()
    assert (user.role, SignIn.find_valid(begun.secret)) == ("viewer", None)
    assert problems() == []


def test_a_copied_cookie_does_not_rise_with_its_user(account):
    user = identity("viewer").admit()
    begun = SignIn.begin(user)

    identity("admin").admit()

    assert (user.role, SignIn.find_valid(begun.secret)) == ("admin", None)


def test_a_user_is_linked_only_if_that_is_allowed_and_loses_what_others_could_use(account, linking):
    user = factories.user(account=account, email="ada@example.org")
    agent = factories.agent(account=account)
    grant, begun = factories.live_grant(agent, user), SignIn.begin(user)
    link = Invitation.issue(user)
    db.session.commit()

    assert identity().admit() is user
    db.session.commit()

    assert (grant.status, SignIn.find_valid(begun.secret), Invitation.by_secret(link)) == (
        *("ended", None),
        None,
    )
    assert "began to sign in" in AccessGrant.refusal_reason(agent, user)
    assert len(records("user_linked")) == 1
    assert problems() == []


def test_a_changed_subject_is_linked_anew(account, linking):
    user = identity().admit()
    user.password_linked_at = None
    grant = factories.live_grant(factories.agent(account=account), user)

    assert identity(subject="8").admit() is user

    assert (grant.status, user.password_linked_at is not None) == ("ended", True)
    with pytest.raises(Refused, match="no role|in one account"):
        identity(None).admit()


def test_an_invited_user_joins_by_being_linked(account, linking):
    boss = factories.user(account=account)
    invited = User.invite(account, "ada@example.org", role="viewer", by=boss)

    assert identity().admit() is invited

    assert (invited.role, invited.takes_password, invited.password_hash is None) == (
        *("admin", False),
        False,
    )


@pytest.mark.parametrize("fields", [{"site_admin": True}, {"active": False}])
def test_site_admins_and_inactive_users_are_never_linked(account, linking, fields):
    factories.user(account=account, email="ada@example.org", **fields)

    with pytest.raises(Refused, match="is already a user"):
        identity().admit()


def test_a_user_of_another_account_is_never_linked(account, linking):
    user = factories.user(email="ada@example.org")

    with pytest.raises(Refused, match="is already a user"):
        identity().admit()
    assert user.identity_hash is None


def test_who_was_only_invited_elsewhere_may_join(account):
    elsewhere = factories.account()
    User.invite(elsewhere, "ada@example.org", role="admin", by=factories.user(account=elsewhere))

    assert identity().admit().account is account
    with pytest.raises(Refused, match="is already a user"):
        User.register(elsewhere, "ada@example.org", "a long password", by="a test")


def test_a_site_admin_is_not_let_in_by_a_claim(account):
    user = identity().admit()
    user.site_admin = True

    with pytest.raises(Refused, match="a site admin signs in"):
        identity().admit()


def test_an_identity_that_sql_wrote_lets_nobody_in(account):
    user = factories.user(account=account)
    db.session.commit()
    sql.run(f"UPDATE users SET identity_hash = '{identity().hashed}' WHERE id = {user.id}")
    db.session.expire_all()

    with pytest.raises(RowAltered):
        identity().admit()


def test_a_password_lets_nobody_in_where_all_go_to_the_provider(account, linking, set_setting):
    user = factories.user(account=account, email="ada@example.org")
    identity().admit()
    link = Invitation.issue(user)
    db.session.commit()
    assert User.with_password(user.email, factories.PASSWORD) is user
    assert user.has_password(factories.PASSWORD)
    db.session.commit()

    set_setting(oidc_only=True)

    assert User.with_password(user.email, factories.PASSWORD) is None
    assert not user.has_password(factories.PASSWORD)
    assert Invitation.by_secret(link) is None
    other = factories.user()
    assert User.with_password(other.email, factories.PASSWORD) is other
