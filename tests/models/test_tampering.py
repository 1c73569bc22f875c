"""What a superuser of the database can do without the keys: each shows, by the row's name."""

from typing import Any, NamedTuple

import pytest
from flask import Flask
from sqlalchemy import CheckConstraint, UniqueConstraint, func, select
from sqlalchemy.exc import OperationalError

from refine import clock
from refine.access import reading
from refine.errors import RowAltered
from refine.extensions import db
from refine.models import (
    AccessGrant,
    Account,
    Agent,
    AgentMemory,
    ApiToken,
    AuditLog,
    ChainHead,
    Endpoint,
    Invitation,
    RefinementSession,
    SecondFactor,
    SignIn,
    User,
)
from refine.models.agent import configuring
from refine.models.attested import Attested, signed_columns
from refine.models.audit import PLATFORM
from refine.models.integrity import attested_kinds
from refine.models.runs.session.entry import SessionEntry
from refine.refinement import time_machine
from tests import editing, factories, sql
from tests.chains import problems
from tests.factories import PASSWORD, text_of


class Lived(NamedTuple):
    """Names of what an agent, its users and its programs left, for statements and messages."""

    names: dict[str, Any]
    agent: Agent


@pytest.fixture
def lived(app: Flask) -> Lived:
    """An agent that lived, was verified, and whose rows tests change."""
    account = factories.account()
    boss = factories.user(account=account)
    admin = User.invite(account, "admin@example.org", role="admin", by=boss)
    secret = Invitation.issue(admin, by=boss)
    invitation = db.session.scalars(select(Invitation)).one()
    viewer = User.invite(account, "viewer@example.org", role="viewer", by=boss)
    gone = User.invite(account, "gone@example.org", role="admin", by=boss)
    gone.active = False
    gone.record("user_updated", by=boss)
    SecondFactor.make_codes(viewer)
    signed_in = SignIn.begin(viewer)
    signed_out = SignIn.begin(boss)
    open_digest = signed_out.row_digest
    signed_out.end()

    agent = factories.agent(account=account, system_prompt="You are Ada.")
    configuring.author(agent, "refinement_prompt", "Go gently.")
    configuring.configure(agent, user=boss, refinement_threshold=0.9)
    other = factories.agent("another's memory", account=account, system_prompt="You are Bo.")
    for _ in range(20):
        agent.ledger.remember(text_of(25), "core")
    platform, _ = ApiToken.mint(account=account)
    token, _ = ApiToken.mint(account=account, agent=agent)
    revoked, _ = ApiToken.mint(account=account, agent=agent)
    old_digest = revoked.row_digest
    revoked.revoke()

    first = factories.session(agent)
    ids = list(db.session.scalars(agent.ledger.core().with_only_columns(AgentMemory.id)))
    editing.delete(first, ids[0])
    editing.complete(first, "Done.")
    db.session.commit()
    second = factories.session(agent)
    editing.update(second, ids[1], text_of(24))
    editing.complete(second, "Done.")
    time_machine.undo(second, through="dashboard")
    endpoint = factories.endpoint(account)
    grant = factories.live_grant(agent, boss)
    ended = factories.live_grant(agent, factories.user(account=account))
    ended.end(user=None)
    db.session.commit()
    assert problems() == []
    assert secret

    return Lived(
        {
            "agent": agent.id,
            "other": other.id,
            "account": account.id,
            "boss": boss.id,
            "admin": admin.id,
            "viewer": viewer.id,
            "gone": gone.id,
            "invitation": invitation.id,
            "sign_in": signed_in.id,
            "factor": db.session.scalars(select(SecondFactor.id)).one(),
            "signed_out": signed_out.id,
            "open_digest": open_digest,
            "platform": platform.id,
            "token": token.id,
            "endpoint": endpoint.id,
            "revoked": revoked.id,
            "old_digest": old_digest,
            "grant": grant.id,
            "ended": ended.id,
            "session": first.id,
            "undone": second.id,
        },
        agent,
    )


CHANGED = "was changed in the database, not by Refine"

# Whole statements, and what verification says of them.
STATEMENTS: dict[str, tuple[str, str]] = {
    "a token inserted": (
        "INSERT INTO api_tokens (kind, account_id, agent_id, token_hash, hint, row_digest) "
        "SELECT kind, account_id, agent_id, repeat('b', 64), hint, row_digest FROM api_tokens "
        "WHERE id = {token}",
        CHANGED,
    ),
    "a user inserted": (
        "INSERT INTO users (account_id, email, password_hash, site_admin, row_digest) "
        "SELECT account_id, 'forged@example.org', password_hash, true, row_digest FROM users "
        "WHERE id = {boss}",
        CHANGED,
    ),
    "an invitation inserted": (
        "INSERT INTO invitations (user_id, secret_hash, expires_at) "
        "VALUES ({boss}, repeat('c', 64), now() + interval '1 day')",
        CHANGED,
    ),
    "a grant copied to another user": (
        "INSERT INTO access_grants (agent_id, account_id, user_id, status, reason, purpose, "
        "duration_minutes, model_id, granted_at, expires_at, row_digest) "
        "SELECT agent_id, account_id, {viewer}, status, reason, purpose, duration_minutes, "
        "model_id, granted_at, expires_at, row_digest FROM access_grants WHERE id = '{grant}'",
        CHANGED,
    ),
    "an older version of a token, with its digest": (
        "UPDATE api_tokens SET revoked_at = NULL, row_digest = '{old_digest}' WHERE id = {revoked}",
        "ApiToken {revoked} does not match its last record",
    ),
    "an older version of a sign-in, with its digest": (
        "UPDATE sign_ins SET ended_at = NULL, row_digest = '{open_digest}' WHERE id = {signed_out}",
        "SignIn {signed_out} does not match its last record",
    ),
    "all grants deleted": ("DELETE FROM access_grants", "AccessGrant {first_grant} has records"),
    "a session deleted": (
        "DELETE FROM refinement_sessions WHERE id = '{session}'",
        "RefinementSession {session} has records, but is gone",
    ),
    "a user deleted": ("DELETE FROM users WHERE id = {gone}", "User {gone} has records"),
    "a token deleted": (
        "DELETE FROM api_tokens WHERE id = {token}",
        "ApiToken {token} has records",
    ),
    "a data key marked destroyed": (
        "UPDATE data_keys SET wrapped = NULL, destroyed_at = now() "
        "WHERE id = (SELECT data_key_id FROM agents WHERE id = {agent})",
        "the data key was destroyed without a record",
    ),
    "another agent's data key": (
        "UPDATE data_keys a SET wrapped = b.wrapped FROM data_keys b "
        "WHERE a.id = (SELECT data_key_id FROM agents WHERE id = {agent}) "
        "AND b.id = (SELECT data_key_id FROM agents WHERE id = {other})",
        "the wrapped data key does not belong to agent {agent}",
    ),
    "an agent deleted": ("DELETE FROM agents WHERE id = {agent}", "the agent is gone"),
}


# Which row of each kind is changed, and what a column of each type is set to.
ROWS = {
    Account: "account",
    User: "viewer",
    Agent: "agent",
    ApiToken: "token",
    Endpoint: "endpoint",
    Invitation: "invitation",
    SecondFactor: "factor",
    SignIn: "sign_in",
    AccessGrant: "grant",
    RefinementSession: "session",
}
OTHER_VALUES = {
    "BIGINT[]": "coalesce({0}, '{{}}') || 1::bigint",
    "TEXT[]": "coalesce({0}, '{{}}') || 'x'::text",
    "BOOLEAN": "NOT coalesce({0}, false)",
    "BIGINT": "coalesce({0}, 0) + 1",
    "INTEGER": "coalesce({0}, 0) + 1",
    "NUMERIC": "coalesce({0}, 0) + 1",
    "DOUBLE PRECISION": "coalesce({0}, 0.5) / 2",
    "TIMESTAMP WITH TIME ZONE": "coalesce({0}, now()) + interval '1 day'",
    "TEXT": "coalesce({0}, '') || 'x'",
    "BYTEA": "coalesce({0}, '') || 'x'",
    "UUID": "gen_random_uuid()",
    "JSONB": "'[7]'",
}


def test_every_change_of_a_signed_column_is_found(lived, subtests):
    factories.account()
    db.session.commit()
    for kind in attested_kinds():
        table, row_id = kind.__table__, lived.names[ROWS[kind]]
        limits = (CheckConstraint, UniqueConstraint)
        named = [each.name for each in table.constraints if isinstance(each, limits)]
        unlimited = [f"ALTER TABLE {table} DROP CONSTRAINT {name}" for name in named]
        for column in set(signed_columns(kind).values()) - {table.c.id}:
            change = f"UPDATE {table} SET {column.name} = {other_value(column)}"
            with subtests.test(kind=kind, column=column.name):
                assert problems(*unlimited, f"{change} WHERE id = '{row_id}'") != []


def other_value(column):
    """Another value, as SQL; of a foreign key another row."""
    for key in column.foreign_keys:
        there = key.column
        return f"(SELECT id FROM {there.table} o WHERE o.id IS DISTINCT FROM {column} LIMIT 1)"
    type_ = column.type.compile(db.engine.dialect).partition("(")[0]
    return OTHER_VALUES[type_].format(column.name)


def test_every_other_tampering_is_found(lived, subtests):
    grants = sorted(str(lived.names[name]) for name in ("grant", "ended"))
    names = {**lived.names, "first_grant": grants[0]}
    for name, (statements, says) in STATEMENTS.items():
        with subtests.test(change=name):
            found = problems(*statements.format(**names).split("; "))
            assert says.format(**names) in " ".join(found)


def test_every_row_with_a_digest_is_verified():
    mapped = {mapper.class_ for mapper in db.Model.registry.mappers}

    attested = {kind for kind in mapped if issubclass(kind, Attested)}
    # memories and heads have steps of their own; entries last as long as their session, which
    # counts none that was changed
    assert set(attested_kinds()) == attested - {AgentMemory, ChainHead, SessionEntry}


def test_nothing_is_recorded_in_a_chain_that_is_gone(lived):
    sql.tamper(
        f"DELETE FROM chain_heads WHERE agent_id = {lived.agent.id}",
        "DELETE FROM chain_heads WHERE account_id IS NULL AND agent_id IS NULL",
    )

    with pytest.raises(RowAltered, match=f"the audit chain of agent {lived.agent.id}"):
        lived.agent.record("memory_saved")
    db.session.rollback()
    with pytest.raises(RowAltered, match="the audit chain of platform"):
        AuditLog.record("keys_rotated", chain=PLATFORM)
    db.session.rollback()
    with pytest.raises(RowAltered, match="the audit chain of platform"):
        factories.account()


# -- what a forged row opens ----------------------------------------------------------------------


def tampered(statement: str) -> None:
    db.session.connection().exec_driver_sql(statement)
    db.session.expire_all()


def test_a_changed_agent_opens_nothing(lived):
    tampered(f"UPDATE agents SET model_id = 'rehearsal/yes' WHERE id = {lived.agent.id}")

    with pytest.raises(Exception, match=f"Agent {lived.agent.id} was changed in the database"):
        _ = lived.agent.system_prompt
    with pytest.raises(Exception, match=f"Agent {lived.agent.id} was changed in the database"):
        lived.agent.memory_context()


def test_a_changed_agent_is_not_made_genuine_by_a_later_change(lived):
    tampered(f"UPDATE agents SET active = true, name = 'Bo' WHERE id = {lived.agent.id}")

    id_ = lived.agent.id
    lived.agent.paused = True

    with pytest.raises(Exception, match=f"Agent {id_} was changed in the database"):
        db.session.flush()


@pytest.mark.parametrize(
    "change",
    [
        "removed_tokens = 0",
        "ended_at = ended_at - interval '40 days'",
        "agent_id = {other}",
        "status = 'queued', ended_at = NULL, row_digest = NULL",
    ],
)
def test_changed_figures_of_a_session_allow_no_further_one(lived, change):
    tampered(
        f"UPDATE refinement_sessions SET {change.format(**lived.names)} "
        f"WHERE id = '{lived.names['session']}'"
    )

    with pytest.raises(Exception, match=r"RefinementSession .* was changed in the database"):
        RefinementSession.removed_recently(lived.agent)


def test_a_changed_user_cannot_sign_in(lived):
    boss = db.session.get_one(User, lived.names["boss"])
    id_, email = boss.id, boss.email
    assert User.with_password(email, PASSWORD) is boss

    tampered(f"UPDATE users SET site_admin = true WHERE id = {id_}")

    with pytest.raises(Exception, match=f"User {id_} was changed in the database"):
        User.with_password(email, PASSWORD)


def test_a_changed_user_may_not_act(lived):
    boss = db.session.get_one(User, lived.names["boss"])
    tampered(f"UPDATE users SET site_admin = true WHERE id = {boss.id}")

    reason = boss.inability_reason(lived.agent.account_id)

    assert reason == f"User {lived.names['boss']} was changed in the database, not by Refine"


def test_a_request_that_was_moved_to_another_account_does_not_open_its_purpose(lived):
    account_id = factories.user().account_id
    grant = db.session.get_one(AccessGrant, lived.names["ended"])
    assert grant.purpose

    tampered(f"UPDATE access_grants SET account_id = {account_id} WHERE id = '{grant.id}'")

    with pytest.raises(RowAltered, match="AccessGrant"):
        _ = grant.purpose


def test_a_run_of_a_changed_agent_does_not_start(lived):
    session = RefinementSession.queue(lived.agent, "manual")
    db.session.commit()
    tampered(f"UPDATE agents SET model_id = 'rehearsal/yes' WHERE id = {lived.agent.id}")

    reason = session.skip_reason(clock.now())

    assert reason == f"Agent {lived.names['agent']} was changed in the database, not by Refine"


def test_a_sign_in_of_a_changed_user_has_ended(lived):
    boss = db.session.get_one(User, lived.names["boss"])
    secret = SignIn.begin(boss).secret
    assert SignIn.find_valid(secret) is not None

    tampered(f"UPDATE users SET site_admin = true WHERE id = {boss.id}")

    assert SignIn.find_valid(secret) is None


def test_a_changed_grant_lets_nobody_read(lived):
    boss = db.session.get_one(User, lived.names["boss"])
    id_ = lived.names["grant"]
    assert [each.id for each in reading.live_grants(boss)] == [id_]

    tampered("UPDATE access_grants SET expires_at = expires_at + interval '1 day'")
    db.session.commit()
    db.session.connection()
    db.session.rollback()  # as for a new request, which relies on nothing yet

    assert reading.live_grants(boss) == []
    with pytest.raises(Exception, match=f"AccessGrant {id_} was changed in the database"):
        reading.prompts(id_, boss)


def test_a_row_that_could_not_be_read_is_not_altered(app):
    agent_id = factories.agent().id
    db.session.commit()
    db.session.expunge_all()
    agent = db.session.get_one(Agent, agent_id)  # without its prompts, which the digest covers
    pid = db.session.scalar(select(func.pg_backend_pid()))
    with db.engine.connect() as other:
        other.execute(select(func.pg_terminate_backend(pid, 10_000)))
    with pytest.raises(OperationalError):
        agent.require_genuine()
    db.session.rollback()

    agent.require_genuine()
