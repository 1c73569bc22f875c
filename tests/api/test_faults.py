"""Faults are problems that reveal no content, and classified in one place."""

import pytest
from sqlalchemy import select
from werkzeug.exceptions import MethodNotAllowed

from refine import faults
from refine.errors import InvalidValue, NotFound, Refused, TooMany, Unreachable, WrongKey
from refine.extensions import db
from refine.models import IdempotencyKey
from tests import factories, sql
from tests.api.conftest import refusing_memories
from tests.api.test_every_operation import is_problem

WORDS = "the heron stands where the ice was"
NEW = {"content": WORDS, "memory_type": "core"}


@pytest.mark.parametrize(
    ("error", "status", "detail", "is_logged"),
    [
        (InvalidValue("too long"), 422, "Too long.", False),
        (NotFound(WORDS), 404, None, False),
        (TooMany("wait", retry_after_seconds=7), 429, "Wait.", False),
        (Refused("it is paused"), 409, "It is paused.", False),
        (WrongKey("no key opens it"), 500, "No key opens it.", True),
        (Unreachable("Redis is away"), 503, "Redis is away.", False),
        (MethodNotAllowed(["GET", "POST"], WORDS), 405, None, False),
        (RuntimeError(WORDS), 500, None, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_classifies_exceptions(error, status, detail, is_logged):
    fault = faults.classify(error)

    assert (fault.status, fault.detail, fault.log is not None) == (status, detail, is_logged)
    assert WORDS not in str(fault)
    assert fault.headers.get("Retry-After") == {429: "7", 503: "5"}.get(status)
    assert fault.headers.get("Allow") == {405: "GET, POST"}.get(status)


@pytest.mark.parametrize(
    ("sqlstate", "status"),
    [("22001", 422), ("23505", 409), ("55P03", 503), ("40P01", 503), ("57014", 503)],
)
def test_hides_the_message_of_a_database_error(world, sqlstate, status):
    with refusing_memories(sqlstate, WORDS):
        answer = world.own.post("/memories", json=NEW)
    after = world.own.post("/memories", json=NEW)

    assert answer.status_code == status
    assert is_problem(answer)
    assert WORDS not in answer.text
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert after.status_code == 201


def test_names_the_column_that_cannot_be_opened(world):
    memory = factories.memory(world.agent, WORDS)
    db.session.commit()
    sql.run(f"UPDATE agent_memories SET content = '\\x00' WHERE id = {memory.id}")

    answer = world.own.get("/memories")

    assert answer.status_code == 500
    assert is_problem(answer)
    assert answer.json["detail"] == (
        f"Agent_memories.content of row {memory.id} cannot be opened: it was altered or moved."
    )


def test_hides_the_message_of_an_unexpected_exception(world, caplog):
    key = {"Idempotency-Key": "k"}
    world.own.post("/memories", json=NEW, headers=key)
    row = db.session.scalars(select(IdempotencyKey)).one()
    row.answer = f'"{WORDS}"'
    db.session.commit()

    answer = world.own.post("/memories", json=NEW, headers=key)

    assert answer.status_code == 500
    assert is_problem(answer)
    assert WORDS not in answer.text
    assert WORDS not in caplog.text
