"""Faults are problems that reveal no content, and classified in one place."""

from contextlib import suppress

import pytest
from flask import Flask
from sqlalchemy import select, text
from sqlalchemy.exc import TimeoutError as PoolTimeout

from refine import create_app
from refine.extensions import db
from refine.models import IdempotencyKey
from refine.settings import Settings
from tests import factories
from tests.api.conftest import Everybody, bearing, program_of, refusing_memories
from tests.api.test_every_operation import is_problem

WORDS = "the heron stands where the ice was"
NEW = {"content": WORDS, "memory_type": "core"}


@pytest.mark.parametrize(
    ("sqlstate", "status"),
    [("22001", 422), ("23505", 409), ("55P03", 503), ("40P01", 503), ("57014", 503)],
)
def test_hides_the_message_of_a_database_error(
    everybody: Everybody, sqlstate: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    with refusing_memories(sqlstate, WORDS):
        answer = everybody.own.post("/memories", json=NEW)
    after = everybody.own.post("/memories", json=NEW)

    assert answer.status_code == status
    assert is_problem(answer)
    assert WORDS not in answer.text
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert after.status_code == 201


def test_answers_503_without_the_database(app: Flask, environ: dict[str, str]) -> None:
    program = program_of(app, factories.agent("a memory"))
    away = create_app(
        Settings.from_environ({**environ, "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"})
    )

    answer = bearing(away, program.secret).get("/context")

    assert answer.status_code == 503
    assert is_problem(answer)
    assert int(answer.headers["Retry-After"]) > 0


def test_answers_503_when_no_connection_is_free(everybody: Everybody, app: Flask) -> None:
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


def test_names_the_column_that_cannot_be_opened(everybody: Everybody) -> None:
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


def test_hides_the_message_of_an_unexpected_exception(
    everybody: Everybody, caplog: pytest.LogCaptureFixture
) -> None:
    key = {"Idempotency-Key": "k"}
    everybody.own.post("/memories", json=NEW, headers=key)
    row = db.session.scalars(select(IdempotencyKey)).one()
    row.sealed_answer = everybody.agent.data_key().seal(f'"{WORDS}"', "idempotency_keys.answer")
    db.session.commit()

    answer = everybody.own.post("/memories", json=NEW, headers=key)

    assert answer.status_code == 500
    assert is_problem(answer)
    assert WORDS not in answer.text
    assert WORDS not in caplog.text
