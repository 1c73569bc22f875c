from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cryptography.fernet import Fernet
from flask import Flask
from sqlalchemy import select

from refine import clock, create_app
from refine.errors import SealingError, WrongKey
from refine.extensions import db
from refine.models import Agent, AgentMemory, WrappedKey
from refine.settings import Settings
from tests import factories, sql
from tests.chains import problems


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
        "content": lambda: setattr(db.session.scalar(agent.ledger.core()), "content", "new"),
        "record": lambda: agent.record("memory_saved"),
        "prompt": lambda: setattr(agent, "refinement_prompt", "new"),
        "key": lambda: WrappedKey.for_agent(1),
    }

    with pytest.raises(WrongKey):
        uses[use]()
    db.session.commit()

    assert sql.snapshot() == before


def test_data_keys_of_an_older_key_open_after_a_new_one_is_added(app, environ):
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


def test_each_agent_has_its_own_key(app):
    one, other = factories.agent("same words"), factories.agent("same words")

    sealed = db.session.scalar(one.ledger.core()).sealed_content

    assert one.data_key_id != other.data_key_id
    with pytest.raises(SealingError):
        other.data_key().open(sealed, "agent_memories.content")


def test_destroying_a_key_erases_everything_it_sealed(app):
    agent = factories.agent("words")
    memory = db.session.scalar(agent.ledger.core())
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


# -- rotation --------------------------------------------------------------------------------------

NEW = Fernet.generate_key().decode()


@contextmanager
def started_with(environ: dict[str, str], *keys: str) -> Iterator[None]:
    """The application as it comes up with these keys, the first of which wraps."""
    started = create_app(
        Settings.from_environ({**environ, "REFINE_ENCRYPTION_KEYS": ",".join(keys)})
    )
    with started.app_context():
        yield
        db.session.rollback()
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def old(app: Flask, environ: dict[str, str]) -> str:
    """The key under which two agents and the platform's records were sealed."""
    for name in ("Ada", "Bea"):
        agent = factories.agent(name=name, system_prompt=f"You are {name}.")
        agent.ledger.remember(f"the words of {name}", "core")
    db.session.commit()
    return environ["REFINE_ENCRYPTION_KEYS"]


@pytest.fixture
def rotating(old: str, environ: dict[str, str]) -> Iterator[None]:
    """The application came up with a new key in front of the old one."""
    with started_with(environ, NEW, old):
        yield


def rotate_all() -> None:
    while WrappedKey.rotate(after_id=0, limit=1):
        db.session.commit()


def wrapped_by() -> list[str]:
    db.session.expire_all()
    return list(db.session.scalars(select(WrappedKey.wrapped_by).order_by(WrappedKey.id)))


def test_a_rotation_wraps_every_key_by_the_first(rotating):
    ids = list(db.session.scalars(select(WrappedKey.id).order_by(WrappedKey.id)))
    primary = WrappedKey.for_agent(1).wrapped_by
    assert WrappedKey.count_under_older_keys() == 3

    part = WrappedKey.rotate(after_id=0, limit=100)
    db.session.commit()

    assert part == (ids[-1], 3, [])
    assert wrapped_by() == [primary] * 3
    assert WrappedKey.count_under_older_keys() == 0


def test_a_rotation_touches_nothing_but_how_keys_are_wrapped(rotating):
    def rows() -> list[tuple[object, ...]]:
        kept = (WrappedKey.id, WrappedKey.purpose, WrappedKey.created_at, WrappedKey.destroyed_at)
        return [tuple(row) for row in db.session.execute(select(*kept).order_by(WrappedKey.id))]

    before, rows_before = sql.snapshot(), rows()

    rotate_all()

    after = sql.snapshot()
    assert {table for table in before if before[table] != after[table]} == {"data_keys"}
    assert rows() == rows_before


def test_after_a_rotation_the_first_key_is_enough(rotating, environ):
    rotate_all()

    with started_with(environ, NEW):
        WrappedKey.check_keyring()
        contents = [memory.content for memory in db.session.scalars(select(AgentMemory))]
        db.session.commit()
        found = problems()

    assert contents == ["the words of Ada", "the words of Bea"]
    assert found == []


@pytest.mark.parametrize("parts", [1, 3])
def test_nothing_is_written_with_only_the_old_key_during_or_after_a_rotation(
    rotating, old, environ, parts
):
    for _ in range(parts):
        WrappedKey.rotate(after_id=0, limit=1)
    db.session.commit()
    before = sql.snapshot()

    with started_with(environ, old):
        for write in (
            WrappedKey.check_keyring,
            factories.agent,
            lambda: Agent.named("Ada").ledger.remember("new words", "core"),
        ):
            with pytest.raises(WrongKey, match="REFINE_ENCRYPTION_KEYS does not hold the key"):
                write()
            db.session.rollback()

    assert sql.snapshot() == before


def test_a_rotation_skips_destroyed_keys(rotating):
    key = Agent.named("Ada").wrapped_key
    key.wrapped, key.destroyed_at = None, clock.now()
    db.session.commit()
    row = f"SELECT k::text FROM data_keys k WHERE id = {key.id}"
    before = sql.value(row)

    rotate_all()

    assert sql.value(row) == before
    assert WrappedKey.count_under_older_keys() == 0
