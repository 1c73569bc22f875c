"""Sign-ins and invitations that were over for long are deleted, and nothing else."""

from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import select

from refine.extensions import db
from refine.models import AuditLog, Invitation, SignIn, User
from refine.models.integrity import verify_all
from refine.models.people import pruning
from refine.models.people.pruning import INVITATIONS_KEPT_FOR, SIGN_INS_KEPT_FOR
from refine.models.people.sign_in import IDLE_FOR, LASTS_FOR
from tests import factories, sql

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def user(app: Flask) -> User:
    return factories.user()


def prune() -> int:
    """Prune as the clock does; return how many rows were deleted."""
    return sum(map(sum, (batches(kind) for kind in (SignIn, Invitation))))


def batches(kind: pruning.Kind) -> list[int]:
    db.session.commit()
    counts, after_id = [], 0
    while after_id is not None:
        count, after_id = pruning.prune(kind, NOW, after_id)
        db.session.commit()
        counts.append(count)
    return counts


def problems() -> list[str]:
    db.session.commit()
    db.session.expire_all()
    return [found.problem for found in verify_all() if found.problem is not None]


def left(kind: type[SignIn] | type[Invitation]) -> list[int]:
    return list(db.session.scalars(select(kind.id).order_by(kind.id)))


def signed_in(user: User, ago: timedelta) -> SignIn:
    sign_in = SignIn.begin(user, NOW - ago)
    db.session.commit()
    return sign_in


# -- what is over ----------------------------------------------------------------------------------


def idle(user: User, later: timedelta) -> None:
    signed_in(user, SIGN_INS_KEPT_FOR + IDLE_FOR + later)


def ended(user: User, later: timedelta) -> None:
    signed_in(user, SIGN_INS_KEPT_FOR + later).end(NOW - SIGN_INS_KEPT_FOR - later)


def expired(user: User, later: timedelta) -> None:
    signed_in(user, SIGN_INS_KEPT_FOR + LASTS_FOR + later).last_seen_at = NOW


def expired_link(user: User, later: timedelta) -> None:
    Invitation.issue(user, NOW)
    user.record("user_invited", by=user)
    link = db.session.scalars(select(Invitation)).one()
    link.expires_at = NOW - INVITATIONS_KEPT_FOR - later
    user.record("user_updated", by=user)


@pytest.mark.parametrize("begin", [idle, ended, expired, expired_link])
@pytest.mark.parametrize(("later", "deleted"), [(-SECOND, 0), (SECOND, 1)])
def test_a_row_is_deleted_once_it_is_over_for_long(user, begin, later, deleted):
    begin(user, later)

    assert prune() == deleted


def test_an_invitation_goes_once_it_was_used_long_ago(user):
    Invitation.issue(user, NOW - INVITATIONS_KEPT_FOR)
    Invitation.end_all_of(user, NOW - INVITATIONS_KEPT_FOR - SECOND)
    user.record("user_updated", by=user)

    assert prune() == 1


# -- what verification says ------------------------------------------------------------------------


def test_records_the_deletion_of_rows_that_have_records(user):
    for _ in range(2):
        signed_in(user, 2 * SIGN_INS_KEPT_FOR).end(NOW - 2 * SIGN_INS_KEPT_FOR)
    db.session.commit()
    ids = left(SignIn)

    prune()

    record = db.session.scalars(select(AuditLog).filter_by(action="rows_pruned")).one()
    assert record.data == {"sign_ins": 2}
    assert record.account_id == user.account_id
    assert record.rows is not None
    assert set(record.rows) == {f"SignIn {id_}" for id_ in ids}
    assert left(SignIn) == []
    assert problems() == []


def test_does_not_record_the_deletion_of_rows_without_records(user):
    signed_in(user, 2 * SIGN_INS_KEPT_FOR)

    assert prune() == 1
    assert db.session.scalars(select(AuditLog).filter_by(action="rows_pruned")).all() == []
    assert problems() == []


def test_a_restored_deleted_row_is_found(user):
    sign_in = signed_in(user, 2 * SIGN_INS_KEPT_FOR)
    sign_in.end(NOW - 2 * SIGN_INS_KEPT_FOR)
    db.session.commit()
    id_ = sign_in.id
    sql.run(f"CREATE TABLE earlier AS SELECT * FROM sign_ins WHERE id = {id_}")
    prune()

    sql.tamper("INSERT INTO sign_ins SELECT * FROM earlier", "DROP TABLE earlier")

    assert problems() == [f"SignIn {id_} does not match its last record"]


def test_a_row_that_was_deleted_outside_the_application_is_missed(user):
    sign_in = signed_in(user, 2 * SIGN_INS_KEPT_FOR)
    sign_in.end(NOW)
    db.session.commit()
    id_ = sign_in.id

    sql.tamper("DELETE FROM sign_ins")

    assert problems() == [f"SignIn {id_} has records, but is gone"]


def test_a_row_that_was_changed_outside_the_application_stays(user):
    altered = signed_in(user, 2 * SIGN_INS_KEPT_FOR)
    signed_in(user, 2 * SIGN_INS_KEPT_FOR)
    Invitation.issue(user, NOW - 3 * INVITATIONS_KEPT_FOR)
    sql.tamper(f"UPDATE sign_ins SET confirmed_at = now() WHERE id = {altered.id}")
    db.session.expire_all()

    assert prune() == 2
    assert left(SignIn) == [altered.id]
    assert problems() == [f"SignIn {altered.id} was changed in the database, not by Refine"]


# -- a few at a time -------------------------------------------------------------------------------


def test_rows_of_several_accounts_are_deleted_in_batches(user, monkeypatch):
    monkeypatch.setattr(pruning, "_BATCH", 2)
    for each in (user, factories.user(), user):
        signed_in(each, 2 * SIGN_INS_KEPT_FOR).end(NOW - 2 * SIGN_INS_KEPT_FOR)

    assert batches(SignIn) == [2, 1]
    told = db.session.scalars(select(AuditLog).filter_by(action="rows_pruned"))
    assert [record.data for record in told] == [{"sign_ins": 1}] * 3
    assert problems() == []
