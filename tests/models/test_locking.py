"""Locking a person or an account out: what ends, who may, and who lets them in again."""

import pytest
from sqlalchemy import select

from refine import clock
from refine.errors import InvalidValue, Refused
from refine.extensions import db
from refine.models import AccessGrant, ApiToken, AuditLog, Endpoint, Invitation, SignIn, User
from refine.models.locking import in_words, lock, unlock
from tests import factories, sql
from tests.chains import problems


@pytest.fixture
def account(app):
    return factories.account()


@pytest.fixture
def admin(account):
    return factories.user(account=account)


@pytest.fixture
def person(account):
    return factories.user(account=account)


@pytest.fixture
def site_admin(app):
    return factories.user(site_admin=True)


def record(action):
    return db.session.scalars(select(AuditLog).where(AuditLog.action == action)).one()


def test_all_that_a_person_could_still_do_ends(account, admin, person):
    agent, other = factories.agent("a memory", account=account), factories.agent(account=account)
    grant = factories.live_grant(agent, person)
    request = factories.grant(other, user_id=person.id)
    of_admin = factories.live_grant(other, admin)
    sign_ins = [SignIn.begin(person) for _ in range(2)]
    of_theirs = SignIn.begin(admin)
    invited = User.invite(account, "new@example.org", role="viewer", by=person)
    secrets = [Invitation.issue(invited, by=person), Invitation.issue(person, by=admin)]
    platform, _ = ApiToken.mint(account=account)
    db.session.commit()

    ended = lock(person, "lost_device", admin)
    db.session.commit()

    assert in_words(ended) == "2 grants, 0 tokens, 2 links, 2 sign-ins"
    assert (grant.status, grant.end_reason, request.status) == (
        *("ended", "no_longer_allowed"),
        "failed",
    )
    assert not any(SignIn.find_valid(each.secret) for each in sign_ins)
    assert not any(Invitation.by_secret(each) for each in secrets)
    assert User.with_password(person.email, factories.PASSWORD) is None
    assert (of_admin.status, SignIn.find_valid(of_theirs.secret)) == ("granted", of_theirs)
    assert not platform.is_revoked
    notes = [entry.content for entry in factories.journal(agent)]
    assert notes[-1].endswith("ended for good: they may no longer have it.")
    kept = record("user_locked")
    assert (kept.user_id, kept.auditable_id) == (admin.id, str(person.id))
    assert kept.data == {"reason": "lost_device", "users": 1, **ended}
    assert problems() == []


def test_tokens_and_webhooks_of_the_account_end_if_that_is_chosen(account, admin, person):
    agents = [factories.agent(account=account) for _ in range(2)]
    grant = factories.live_grant(agents[0], person)
    platform, _ = ApiToken.mint(account=account)
    wall, _ = ApiToken.mint(account=account, kind="wall")
    minted = [platform.mint_for(agent, expires_at=None)[0] for agent in agents]
    own, _ = ApiToken.mint(account=account, agent=agents[1])
    elsewhere, _ = ApiToken.mint(account=factories.account())
    endpoint = factories.endpoint(account)
    db.session.commit()

    ended = lock(person, "incident", admin, ends_tokens=True)
    db.session.commit()

    assert ended == {"grants": 1, "sign-ins": 0, "links": 0, "tokens": 5, "webhooks": 1}
    assert all(each.is_revoked for each in (platform, wall, own, *minted))
    assert not elsewhere.is_revoked
    assert Endpoint.active_of(account) == []
    assert (grant.status, endpoint.secret) == ("ended", None)
    assert record("webhook_removed").data["by"] == "lock"
    assert problems() == []


def test_an_account_is_locked_but_for_the_site_admin_who_does_it(account, admin, person):
    mine = factories.user(account=account, site_admin=True)
    other_site_admin = factories.user(site_admin=True)
    gone = factories.user(account=account, active=False)
    agents = [factories.agent(account=account) for _ in range(2)]
    grants = [factories.live_grant(agents[0], mine), factories.live_grant(agents[1], person)]
    grants.append(factories.live_grant(agents[0], other_site_admin))
    elsewhere = factories.live_grant(factories.agent(), other_site_admin)
    sign_ins = [SignIn.begin(each) for each in (mine, admin, person, other_site_admin)]
    db.session.commit()

    ended = lock(account, "incident", mine)
    db.session.commit()

    assert (ended["grants"], ended["sign-ins"]) == (3, 2)
    assert [each.status for each in grants] == ["ended"] * 3
    assert elsewhere.status == "granted"
    assert [SignIn.find_valid(each.secret) is each for each in sign_ins] == [
        *(True, False, False),
        True,
    ]
    assert (account.paused, account.locked_at is not None) == (True, True)
    assert (gone.locked_at, mine.active) == (None, True)
    assert record("account_locked").data["users"] == 2
    assert problems() == []

    unlock(account, mine)
    db.session.commit()

    assert [each.active for each in (admin, person, gone)] == [True, True, False]
    assert (account.paused, account.locked_at) == (True, None)
    assert record("account_unlocked").data == {"users": 2}
    assert problems() == []


def test_who_was_locked_before_stays_locked_when_the_account_is_unlocked(
    account, admin, person, site_admin
):
    ended = lock(person, "password_known", admin)
    lock(account, "incident", site_admin)
    db.session.commit()
    assert in_words(ended) == "0 grants, 0 tokens, 0 links, 0 sign-ins"

    with pytest.raises(Refused, match="unlock the account"):
        unlock(admin, site_admin)
    unlock(account, site_admin)

    assert (person.active, admin.active) == (False, True)
    assert (person.lock_reason, person.takes_password) == ("password_known", False)


def test_nobody_joins_a_locked_account_by_a_link(account, site_admin):
    lock(account, "incident", site_admin)
    invited = User.invite(account, "new@example.org", role="admin", by=site_admin)
    link = Invitation.issue(invited, by=site_admin)
    db.session.commit()

    assert Invitation.by_secret(link) is None
    unlock(account, site_admin)
    assert Invitation.by_secret(link).user is invited


def test_a_lock_is_lifted_by_another_admin_and_gives_nothing_back(account, admin, person):
    grant = factories.live_grant(factories.agent(account=account), person)
    begun = SignIn.begin(person)
    lock(person, "lost_device", admin)

    unlock(person, admin)
    db.session.commit()

    assert User.with_password(person.email, factories.PASSWORD) is person
    assert (grant.status, SignIn.find_valid(begun.secret)) == ("ended", None)
    assert record("user_unlocked").user_id == admin.id
    with pytest.raises(Refused, match="it is not locked"):
        unlock(person, admin)


def test_a_password_that_somebody_else_may_know_ends_too(account, admin, person):
    invited = User.invite(account, "new@example.org", role="viewer", by=admin)
    for each in (person, invited):
        lock(each, "password_known", admin)
        unlock(each, admin)

    assert User.with_password(person.email, factories.PASSWORD) is None
    assert invited.password_hash is None
    db.session.commit()
    Invitation.by_secret(Invitation.issue(person, by=admin)).accept("another battery")
    assert User.with_password(person.email, "another battery") is person


def test_nobody_locks_themselves_or_whom_they_may_not(account, admin, person, site_admin, subtests):
    viewer = factories.user(account=account, role="viewer")
    theirs = factories.user(account=account, site_admin=True)
    gone = factories.user(account=account, active=False)
    weak, stranger = factories.user(site_admin=True, role="viewer"), factories.user()
    lock(gone, "left", admin)
    db.session.commit()
    before = sql.snapshot()

    for subject, by, why in (
        (admin, admin, "cannot lock yourself out"),
        (person, viewer, "is a viewer"),
        (person, stranger, "belongs to another account"),
        (person, gone, "is not active"),
        (theirs, admin, "only a site admin"),
        (account, admin, "only a site admin"),
        (account, weak, "is a viewer"),
        (gone, admin, "it is locked already"),
    ):
        with subtests.test(why=why, by=by.id), pytest.raises(Refused, match=why):
            lock(subject, "left", by)
        db.session.rollback()
    for subject, by, why in (
        (gone, gone, "is not active"),
        (gone, viewer, "is a viewer"),
        (account, admin, "only a site admin"),
        (account, site_admin, "it is not locked"),
    ):
        with subtests.test(unlock=why), pytest.raises(Refused, match=why):
            unlock(subject, by)
        db.session.rollback()
    with pytest.raises(InvalidValue, match="reason must be one of lost_device"):
        lock(person, "because I say so", admin)
    assert sql.snapshot() == before


def test_the_command_line_locks_and_unlocks_everybody(account, admin, site_admin):
    lock(account, "incident", None)
    lock(site_admin, "left", None)
    assert (admin.active, site_admin.active) == (False, False)
    with pytest.raises(Refused, match="it is locked already"):
        lock(account, "incident", None)

    unlock(account, None)
    unlock(site_admin, None)

    assert (admin.active, site_admin.active) == (True, True)
    assert record("account_locked").data["by"] == "command line"
    assert record("account_unlocked").user_id is None


def test_an_altered_row_keeps_nobody_else_from_being_locked_out(account, admin, person):
    begun, of_admin = SignIn.begin(person), SignIn.begin(admin)
    db.session.commit()
    sql.run(f"UPDATE users SET role = 'viewer' WHERE id = {person.id}")
    db.session.expire_all()

    lock(account, "incident", None)
    db.session.commit()

    assert (person.active, admin.active) == (True, False)
    assert [SignIn.find_valid(each.secret) for each in (begun, of_admin)] == [None, None]
    unlock(account, None)
    db.session.commit()
    assert (admin.active, account.locked_at) == (True, None)


def test_a_request_that_waits_for_the_lock_opens_nothing_afterwards(account, admin, person):
    agent = factories.agent(account=account)
    lock(person, "left", admin)
    grant = factories.grant(agent, user_id=person.id)
    db.session.commit()

    assert not grant.claim()
    assert AccessGrant.refusal_reason(agent, person) == f"{person.email} is not active"
    assert clock.now() > person.locked_at
