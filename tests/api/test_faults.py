"""When something goes wrong with us: a problem that says so, and not a word of what is kept."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from flask import Flask
from sqlalchemy import select, text
from sqlalchemy.exc import TimeoutError as PoolTimeout

from refine import create_app
from refine.extensions import db
from refine.models import IdempotencyKey
from refine.settings import Settings
from tests import factories
from tests.api.conftest import Everybody, bearing, program_of
from tests.api.test_every_operation import is_problem

WORDS = "the heron stands where the ice was"
NEW = {"content": WORDS, "memory_type": "core"}


@contextmanager
def refusing(sqlstate: str) -> Iterator[None]:
    """Have the database refuse every new memory, quoting it."""
    db.session.execute(
        text(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"RAISE EXCEPTION '{WORDS}' USING ERRCODE = '{sqlstate}', DETAIL = '{WORDS}'; END $$; "
            "CREATE TRIGGER refuse BEFORE INSERT ON agent_memories "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    )
    db.session.commit()
    try:
        yield
    finally:
        db.session.execute(text("DROP TRIGGER refuse ON agent_memories; DROP FUNCTION refuse()"))
        db.session.commit()


@pytest.mark.parametrize(
    ("sqlstate", "status"),
    [("22001", 422), ("23505", 409), ("55P03", 503), ("40P01", 503), ("57014", 503)],
)
def test_what_the_database_says_is_not_passed_on(
    everybody: Everybody, sqlstate: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with refusing(sqlstate):
        answer = everybody.own.post("/memories", json=NEW)
    after = everybody.own.post("/memories", json=NEW)

    assert answer.status_code == status
    assert is_problem(answer)
    assert WORDS not in answer.text
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert after.status_code == 201


def test_without_the_database_every_operation_says_so(app: Flask, environ: dict[str, str]) -> None:
    program = program_of(app, factories.agent("a memory"))
    away = create_app(
        Settings.from_environ({**environ, "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"})
    )

    answer = bearing(away, program.secret).get("/context")

    assert answer.status_code == 503
    assert is_problem(answer)
    assert int(answer.headers["Retry-After"]) > 0


def test_a_pool_that_is_empty_is_told(everybody: Everybody, app: Flask) -> None:
    pool = db.engine.pool
    timeout, pool._timeout = pool._timeout, 0.1  # type: ignore[attr-defined]
    taken = []
    try:
        with suppress(PoolTimeout):
            while True:
                taken.append(db.engine.connect())
        answer = everybody.own.get("/context")
    finally:
        pool._timeout = timeout  # type: ignore[attr-defined]
        for connection in taken:
            connection.close()

    assert answer.status_code == 503
    assert is_problem(answer)


def test_content_that_cannot_be_opened_is_a_fault_that_says_which(everybody: Everybody) -> None:
    memory = factories.memory(everybody.agent, WORDS)
    db.session.execute(
        text("UPDATE agent_memories SET content = '\\x00' WHERE id = :id"), {"id": memory.id}
    )
    db.session.commit()

    answer = everybody.own.get("/memories")

    assert answer.status_code == 500
    assert is_problem(answer)
    assert answer.json["detail"] == (
        "Agent_memories.content cannot be opened: it was altered, or moved."
    )


def test_a_fault_of_ours_is_told_without_its_words(
    everybody: Everybody, caplog: pytest.LogCaptureFixture
) -> None:
    key = {"Idempotency-Key": "k"}
    everybody.own.post("/memories", json=NEW, headers=key)
    row = db.session.scalars(select(IdempotencyKey)).one()
    sealed = everybody.agent.data_key().seal(f'"{WORDS}"', "idempotency_keys.answer")
    row.sealed_answer = sealed
    db.session.commit()

    answer = everybody.own.post("/memories", json=NEW, headers=key)

    assert answer.status_code == 500
    assert is_problem(answer)
    assert WORDS not in answer.text
    assert WORDS not in caplog.text
