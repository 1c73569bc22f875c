"""A row that is locked and was checked is changed without being read again; any other is read."""

import pytest

from refine.errors import RowAltered
from refine.extensions import db
from refine.models import RefinementSession
from tests import factories, sql


@pytest.fixture
def session(app):
    started = RefinementSession.start(factories.agent("one", "two"))
    db.session.commit()
    return started


def held(session):
    return RefinementSession.held(session.id, session.lease_token)


def test_each_of_several_changes_is_signed(session):
    locked = held(session)
    for reason in ("once", "twice"):
        locked.error_kind = reason
        db.session.flush()
    db.session.commit()

    assert (session.error_kind, session.is_genuine) == ("twice", True)


def test_a_value_that_was_not_read_again_is_looked_up(session):
    locked = held(session)
    db.session.expire(locked, ["error_kind"])
    locked.error_kind = "timeout"
    db.session.commit()

    assert (session.error_kind, session.is_genuine) == ("timeout", True)


def test_a_lock_that_ended_with_its_savepoint_counts_no_more(session):
    lease_token, id_ = session.lease_token, session.id
    savepoint = db.session.begin_nested()
    locked = RefinementSession.held(id_, lease_token)
    savepoint.rollback()
    db.session.refresh(locked)
    sql.run("UPDATE refinement_sessions SET mutation_count = 1")
    locked.error_kind = "timeout"

    with pytest.raises(RowAltered):
        db.session.flush()
