"""Rows with a digest: what it covers, and what a flush refuses to sign."""

import pytest
from sqlalchemy import inspect

from refine.errors import ChangedMeanwhile, RowAltered
from refine.extensions import db
from refine.models import RefinementSession
from refine.models.attested import signed_columns, write
from refine.models.integrity import attested_kinds
from tests import factories, sql


@pytest.fixture
def session(app):
    started = RefinementSession.start(factories.agent("one", "two"))
    db.session.commit()
    return started


@pytest.mark.parametrize("kind", attested_kinds())
def test_only_columns_are_left_unsigned_and_each_default_is_known_before_the_insert(kind):
    columns = inspect(kind).column_attrs.keys()
    unsigned = {name for base in kind.__mro__ for name in vars(base).get("unsigned", ())}

    assert unsigned <= set(columns)
    assert [
        name
        for name, column in signed_columns(kind).items()
        if column.server_default is not None and column.default is None and name != "id"
    ] == []


def test_each_of_several_changes_is_signed(session):
    for reason in ("once", "twice"):
        session.error_kind = reason
        db.session.flush()
    db.session.commit()

    assert (session.error_kind, session.is_genuine) == ("twice", True)


def test_a_value_that_is_not_loaded_is_looked_up(session):
    db.session.refresh(session)
    db.session.expire(session, ["mutation_count"])
    session.error_kind = "timeout"
    db.session.commit()

    assert (session.error_kind, session.is_genuine) == ("timeout", True)


def test_a_row_that_was_changed_outside_is_not_signed(session):
    sql.run("UPDATE refinement_sessions SET mutation_count = 1")
    session.error_kind = "timeout"

    with pytest.raises(RowAltered):
        db.session.flush()


def test_a_change_outside_that_was_not_seen_stays_unsigned(session):
    db.session.refresh(session)
    sql.run("UPDATE refinement_sessions SET mutation_count = 1")
    session.error_kind = "timeout"
    db.session.commit()

    assert not session.is_genuine


def test_a_row_to_which_nothing_was_done_is_not_written(session):
    version = session.row_digest
    write(session)
    db.session.commit()

    assert (session.row_digest, session.is_genuine) == (version, True)


@pytest.mark.parametrize("write_it", [lambda _: db.session.commit(), write])
def test_a_row_that_another_transaction_changed_first_is_not_overwritten(app, write_it):
    agent = factories.agent()
    db.session.commit()
    db.session.refresh(agent)
    sql.rewrite(f"UPDATE agents SET paused = true WHERE id = {agent.id}")
    agent.core_token_budget = 77

    with pytest.raises(ChangedMeanwhile):
        write_it(agent)
    db.session.rollback()

    assert (agent.paused, agent.core_token_budget, agent.is_genuine) == (True, 5000, True)
