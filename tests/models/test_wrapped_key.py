from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet
from flask import Flask
from sqlalchemy import func, select

from refine import clock, create_app
from refine.errors import SealingError, WrongKey
from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, WrappedKey
from refine.settings import Settings
from tests import factories, sql


@pytest.fixture
def with_other_keys(app: Flask, environ: dict[str, str]) -> Iterator[None]:
    """An agent was made; then the application came up with another key."""
    factories.agent("words", name="Ada", system_prompt="You are Ada.")
    WrappedKey.platform()
    db.session.commit()
    other = create_app(
        Settings.from_environ({**environ, "REFINE_ENCRYPTION_KEYS": Fernet.generate_key().decode()})
    )
    with other.app_context():
        yield
        db.session.rollback()
        db.session.remove()
        db.engine.dispose()


def test_a_wrong_key_is_noticed(with_other_keys):
    with pytest.raises(WrongKey, match="REFINE_ENCRYPTION_KEYS.*fingerprint"):
        WrappedKey.check_keyring()


@pytest.mark.parametrize("use", ["agent", "memory", "content", "record", "prompt", "key"])
def test_a_wrong_key_writes_nothing(with_other_keys, use):
    before = sql.snapshot()
    agent = Agent.named("Ada")
    uses = {
        "agent": lambda: factories.agent(account=agent.account),
        "memory": lambda: factories.memory(agent),
        "content": lambda: setattr(db.session.scalar(agent.memories()), "content", "new"),
        "record": lambda: AuditLog.record("memory_saved", agent=agent),
        "prompt": lambda: setattr(agent, "refinement_prompt", "new"),
        "key": lambda: WrappedKey.new("agent"),
    }

    with pytest.raises(WrongKey):
        uses[use]()
    db.session.commit()

    assert sql.snapshot() == before


def test_a_key_that_was_added_in_front_opens_what_the_old_one_wrapped(app, environ):
    factories.agent("words", name="Ada")
    db.session.commit()
    keys = f"{Fernet.generate_key().decode()},{environ['REFINE_ENCRYPTION_KEYS']}"
    rotated = create_app(Settings.from_environ({**environ, "REFINE_ENCRYPTION_KEYS": keys}))

    with rotated.app_context():
        WrappedKey.check_keyring()
        contents = [memory.content for memory in db.session.scalars(select(AgentMemory))]
        db.session.remove()
        db.engine.dispose()

    assert contents == ["words"]


def test_the_platform_has_one_key(app):
    first, second = WrappedKey.platform(), WrappedKey.platform()

    stored = db.session.scalar(select(func.count()).select_from(WrappedKey))
    assert first is second
    assert stored == 1


def test_each_agent_has_a_key_of_its_own(app):
    one, other = factories.agent("same words"), factories.agent("same words")

    sealed = db.session.scalar(one.memories()).sealed_content

    assert one.data_key_id != other.data_key_id
    with pytest.raises(SealingError):
        other.data_key().open(sealed, "agent_memories.content")


def test_destroying_a_key_erases_what_it_sealed(app):
    agent = factories.agent("words")
    memory = db.session.scalar(agent.memories())
    agent.wrapped_key.wrapped, agent.wrapped_key.destroyed_at = None, clock.now()
    db.session.commit()

    with pytest.raises(SealingError, match="erased for good"):
        _ = memory.content


def test_a_destroyed_key_is_no_wrong_key(app):
    agent = factories.agent()
    agent.wrapped_key.wrapped, agent.wrapped_key.destroyed_at = None, clock.now()
    agent.wrapped_key.wrapped_by = "another"
    db.session.commit()

    WrappedKey.check_keyring()

    assert db.session.get(Agent, agent.id).active


def test_a_stored_key_that_was_altered_does_not_open(app):
    agent = factories.agent("words")
    db.session.commit()
    sql.run("UPDATE data_keys SET wrapped = overlay(wrapped PLACING 'AAAA'::bytea FROM 20)")

    with pytest.raises(SealingError, match="altered"):
        agent.data_key()
