"""Older versions of rows, put back with their digests by somebody who can write to the database."""

from collections.abc import Callable

import pytest
from flask import Flask
from sqlalchemy import select

from refine.extensions import db
from refine.models import (
    AccessGrant,
    Agent,
    AgentMemory,
    ApiToken,
    Invitation,
    RefinementSession,
    SignIn,
)
from refine.models.agent import configuring
from refine.models.attested import Attested
from tests import editing, factories, sql
from tests.chains import problems
from tests.factories import text_of


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent(*(text_of(25) for _ in range(20)), system_prompt="You are Ada.")


def new_request() -> None:
    """Let go of everything, as between two requests."""
    db.session.commit()
    db.session.remove()


def test_an_older_memory_is_found_even_after_a_later_change(agent):
    memory, _ = agent.ledger.remember(text_of(25), "core")
    db.session.commit()
    put_back = sql.copied(memory)
    id_, session = memory.id, factories.session(agent)
    editing.update(session, id_, text_of(24))
    editing.complete(session, "Done.")
    new_request()

    put_back()
    memory = db.session.get_one(AgentMemory, id_)
    memory.set_constitutional(True, user=factories.user(account=memory.agent.account))
    new_request()

    (problem,) = problems()
    assert f"memory {id_} was reverted to an older version before record " in problem


def test_changes_rolled_back_to_a_savepoint_are_not_recorded(agent):
    savepoint = db.session.begin_nested()
    agent.paused = True
    db.session.flush()
    savepoint.rollback()
    configuring.author(agent, "system_prompt", "You are Bo.")
    db.session.commit()

    assert not agent.paused
    assert problems() == []


def test_an_older_version_of_a_running_session_is_found_later(agent):
    session = factories.session(agent)
    first, second, *_ = db.session.scalars(agent.ledger.core())
    second_id = second.id
    put_back, id_, of_agent = sql.copied(session), session.id, f"agent {agent.id}"
    editing.update(session, first.id, text_of(24))
    new_request()
    assert problems() == []
    put_back()
    assert problems() == [f"{of_agent}: RefinementSession {id_} counts 0 mutations, its records 1"]

    session = db.session.get_one(RefinementSession, id_)
    second = db.session.get_one(AgentMemory, second_id)
    editing.update(session, second_id, text_of(24))
    session.give_up("the worker was lost")
    new_request()

    assert problems() == [f"{of_agent}: RefinementSession {id_} counts 1 mutations, its records 2"]


def test_a_session_that_ended_twice_is_found(agent):
    session = RefinementSession.queue(agent, "manual")
    session.request_stop()
    db.session.commit()
    assert problems() == []
    agent.record("memory_refinement_skipped", session_id=session.id, data={"status": "skipped"})
    db.session.commit()

    assert problems() == [
        f"agent {agent.id}: RefinementSession {session.id} is skipped, "
        "but 2 ends of it are recorded"
    ]


def ended_session(agent: Agent) -> Callable[[], None]:
    session = factories.session(agent)
    put_back = sql.copied(session)
    editing.complete(session, "Done.")
    return put_back


def stopped_session(agent: Agent) -> Callable[[], None]:
    session = RefinementSession.queue(agent, "manual")
    db.session.commit()
    put_back = sql.copied(session)
    session.request_stop()
    return put_back


def answered_request(agent: Agent) -> Callable[[], None]:
    grant = factories.grant(agent)
    db.session.commit()
    put_back = sql.copied(grant)
    grant.claim()
    grant.settle("No.", agreed=False, generation_id=None)
    return put_back


def ended_access(agent: Agent) -> Callable[[], None]:
    grant = factories.live_grant(agent, factories.user(account=agent.account))
    db.session.commit()
    put_back = sql.copied(grant)
    grant.end(user=None)
    return put_back


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        (ended_session, "RefinementSession"),
        (stopped_session, "RefinementSession"),
        (answered_request, "AccessGrant"),
        (ended_access, "AccessGrant"),
    ],
)
def test_a_row_put_back_from_before_its_end_is_found(agent, ended, kind):
    put_back = ended(agent)
    db.session.commit()
    assert problems() == []

    put_back()

    (problem,) = problems()
    assert f": {kind} " in problem
    assert problem.endswith(" does not match its last record")


def token_of_an_agent(agent: Agent) -> tuple[Attested, Callable[[], None]]:
    token, _ = ApiToken.mint(account=agent.account, agent=agent)
    return token, token.revoke


def token_of_a_platform(agent: Agent) -> tuple[Attested, Callable[[], None]]:
    token, _ = ApiToken.mint(account=agent.account)
    return token, token.revoke


def sign_in(agent: Agent) -> tuple[Attested, Callable[[], None]]:
    begun = SignIn.begin(factories.user(account=agent.account))
    return begun, begun.end


def invitation(agent: Agent) -> tuple[Attested, Callable[[], None]]:
    user = factories.user(account=agent.account)
    Invitation.issue(user)
    return db.session.scalars(select(Invitation)).one(), lambda: Invitation.end_all_of(user)


def request(agent: Agent) -> tuple[Attested, Callable[[], None]]:
    grant = factories.grant(agent)
    return grant, lambda: AccessGrant.end_all_of(grant.user, by=None)


def grant(agent: Agent) -> tuple[Attested, Callable[[], None]]:
    grant = factories.live_grant(agent, factories.user(account=agent.account))
    return grant, lambda: AccessGrant.end_all_of(grant.user, by=None)


@pytest.mark.parametrize(
    "opened", [token_of_an_agent, token_of_a_platform, sign_in, invitation, request, grant]
)
def test_a_row_that_was_altered_at_its_end_and_set_back_is_found(agent, opened):
    row, end = opened(agent)
    db.session.commit()
    put_back = sql.copied(row)
    sql.tamper(f"UPDATE {row.__tablename__} SET created_at = created_at - interval '1 day'")
    db.session.expire_all()
    end()
    db.session.commit()
    put_back()

    (problem,) = problems()
    assert problem.endswith(f": {row.row_name} is open, but a record says that it ended")

    end()  # once the row is as it was, it can be ended
    db.session.commit()
    assert problems() == []


@pytest.mark.parametrize("opened", [token_of_an_agent, token_of_a_platform, grant])
def test_a_row_that_belonged_to_another_agent_at_its_end_is_found(agent, opened):
    row, end = opened(agent)
    other = factories.agent()
    db.session.commit()
    put_back = sql.copied(row)
    theirs = f"account_id = {other.account_id}"
    if row.agent_id is not None:
        theirs += f", agent_id = {other.id}"
    sql.tamper(f"UPDATE {row.__tablename__} SET {theirs}")
    db.session.expire_all()
    end()
    db.session.commit()
    put_back()

    (problem,) = problems()
    assert problem.endswith(f": {row.row_name} has records, but is gone")


def test_a_restored_key_of_an_erased_agent_is_found(agent):
    db.session.commit()
    put_back = sql.copied(agent.wrapped_key)
    agent.erase()
    db.session.commit()
    assert problems() == []

    put_back()

    assert problems() == [f"agent {agent.id}: the destroyed data key was restored"]
