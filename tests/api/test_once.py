"""The header Idempotency-Key: what is sent twice is done once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import jsonschema
import pytest
import time_machine
from flask import Flask, Response
from redis import Redis
from sqlalchemy import event, select, text

from refine import clock
from refine.api import once
from refine.api.document import document
from refine.extensions import db
from refine.jobs.tick import run_tick
from refine.models import AgentMemory, ApiToken, IdempotencyKey
from tests import factories
from tests.api.conftest import Everybody, bearing, program_of, token_of

KEY = {"Idempotency-Key": "4f6c-1"}
NEW = {"content": "said once", "memory_type": "journal"}


def journals() -> int:
    db.session.rollback()
    kept = select(AgentMemory).where(AgentMemory.memory_type == "journal")
    return len(db.session.scalars(kept).all())


def test_the_same_request_is_done_once_and_answered_twice(everybody: Everybody) -> None:
    first = everybody.own.post("/memories", json=NEW, headers=KEY)
    second = everybody.own.post("/memories", json=NEW, headers=KEY)

    assert (first.status_code, second.status_code) == (201, 201)
    assert first.data == second.data
    assert second.mimetype == "application/json"
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert journals() == 1


def test_without_a_key_it_is_done_as_often_as_it_is_sent(everybody: Everybody) -> None:
    for _ in range(2):
        assert everybody.own.post("/memories", json=NEW).status_code == 201

    assert journals() == 2


def test_a_tools_call_is_made_once_too(everybody: Everybody) -> None:
    call = '{"content": "said once", "memory_type": "journal"}'

    answers = [
        everybody.own.post("/tools/save_memory/calls", data=call, headers=KEY) for _ in range(2)
    ]

    assert answers[0].json == answers[1].json
    assert journals() == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [("/memories", {**NEW, "content": "another"}), ("/sessions", NEW), ("/memories?x=1", NEW)],
)
def test_another_request_under_the_same_key_is_refused(
    everybody: Everybody, path: str, body: dict[str, str]
) -> None:
    everybody.own.post("/memories", json=NEW, headers=KEY)

    answer = everybody.own.post(path, json=body, headers=KEY)

    assert answer.status_code == 422
    assert journals() == 1


def test_a_key_belongs_to_its_token(everybody: Everybody) -> None:
    for program in (everybody.own, everybody.sibling):
        answer = program.post("/memories", json=NEW, headers=KEY)

        assert answer.status_code == 201
        assert "Idempotency-Replayed" not in answer.headers


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "café"])
def test_a_key_that_is_none_is_refused(everybody: Everybody, key: str) -> None:
    headers = {"Idempotency-Key": key.encode().decode("latin-1")}

    answer = everybody.own.post("/memories", json=NEW, headers=headers)

    assert answer.status_code == 400
    assert journals() == 0


@pytest.mark.parametrize("key", ["a", "a b", "x" * 200, " a", "a ", "x" * 201, "é", "a\tb", ""])
def test_a_key_is_what_the_document_says(everybody: Everybody, key: str) -> None:
    said = document()["paths"]["/memories"]["post"]["parameters"][0]["schema"]

    answer = everybody.own.post("/memories", json=NEW, headers={"Idempotency-Key": key})

    is_fit = jsonschema.Draft202012Validator(said).is_valid(key)
    assert answer.status_code == (201 if is_fit else 400)


def test_a_refusal_leaves_the_key_free(everybody: Everybody) -> None:
    path = f"/sessions/{factories.session().id}/undo"
    wrong = everybody.own.post(path, headers=KEY)
    unfit = everybody.own.post("/memories", json={}, headers=KEY)

    right = everybody.own.post("/memories", json=NEW, headers=KEY)

    assert (wrong.status_code, unfit.status_code, right.status_code) == (404, 422, 201)


def test_a_request_that_is_still_being_answered_is_not_begun_again(everybody: Everybody) -> None:
    everybody.own.post("/memories", json=NEW, headers=KEY)
    row = db.session.scalars(select(IdempotencyKey)).one()
    row.sealed_answer = row.answered_at = None
    db.session.commit()

    answer = everybody.own.post("/memories", json=NEW, headers=KEY)

    assert answer.status_code == 409
    assert answer.headers["Retry-After"] == "5"
    assert journals() == 1


def test_of_many_at_once_one_is_done(everybody: Everybody, app: Flask) -> None:
    statuses: list[int] = []

    def send() -> None:
        program = bearing(app, everybody.own.secret)
        statuses.append(program.post("/memories", json=NEW, headers=KEY).status_code)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    assert journals() == 1


def test_where_the_database_refuses_nothing_was_done_and_the_key_is_free(
    everybody: Everybody, app: Flask
) -> None:
    db.session.execute(
        text(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '55P03'; END $$; "
            "CREATE TRIGGER refuse BEFORE INSERT ON agent_memories "
            "FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    )
    db.session.commit()
    try:
        failed = everybody.own.post("/memories", json=NEW, headers=KEY)
    finally:
        db.session.execute(text("DROP TRIGGER refuse ON agent_memories; DROP FUNCTION refuse()"))
        db.session.commit()
    again = everybody.own.post("/memories", json=NEW, headers=KEY)

    assert failed.status_code == 503
    assert failed.mimetype == "application/problem+json"
    assert int(failed.headers["Retry-After"]) > 0
    assert again.status_code == 201


def test_an_answer_is_kept_for_a_day_and_then_forgotten(everybody: Everybody) -> None:
    everybody.own.post("/memories", json=NEW, headers=KEY)
    later = clock.now() + timedelta(hours=24, seconds=1)

    early = run_tick(later - timedelta(seconds=2)).answers_forgotten
    done = run_tick(later).answers_forgotten

    assert (early, done) == (0, 1)
    assert db.session.scalar(select(IdempotencyKey)) is None


def test_after_a_day_a_key_is_new_also_where_no_clock_ticks(everybody: Everybody) -> None:
    everybody.own.post("/memories", json=NEW, headers=KEY)
    with time_machine.travel(clock.now() + timedelta(hours=24, seconds=1)):
        answer = everybody.own.post("/memories", json=NEW, headers=KEY)

    assert answer.status_code == 201
    assert "Idempotency-Replayed" not in answer.headers
    assert journals() == 2


def test_an_answer_is_kept_sealed(everybody: Everybody) -> None:
    everybody.own.post("/memories", json=NEW, headers=KEY)

    row = db.session.execute(text("SELECT idempotency_keys::text FROM idempotency_keys")).scalar()

    assert row is not None
    assert b"said once".hex() not in row
    assert "said once" not in row


def test_a_token_is_shown_once_whatever_the_key(everybody: Everybody) -> None:
    path = f"/agents/{everybody.agent.id}/tokens"

    first = everybody.platform.post(path, headers=KEY)
    second = everybody.platform.post(path, headers=KEY)

    assert (first.status_code, second.status_code) == (201, 409)
    assert second.mimetype == "application/problem+json"
    assert first.json["token"] not in second.text
    assert second.json["type"] == "urn:refine:problem:shown-once"
    assert second.json["token_id"] == first.json["id"]
    assert second.json["hint"] == first.json["hint"]
    revoked = everybody.platform.delete(f"/tokens/{second.json['token_id']}")
    assert revoked.status_code == 204
    minted = select(ApiToken).where(ApiToken.agent_id == everybody.agent.id)
    assert len(db.session.scalars(minted).all()) == 2


def test_a_session_is_asked_for_once(app: Flask) -> None:
    own = program_of(app, factories.agent("a memory"))

    first, second = (own.post("/sessions", headers=KEY) for _ in range(2))

    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json == second.json


class FaultError(Exception):
    """Something of ours that went wrong."""


@pytest.mark.parametrize("is_done", [False, True])
def test_a_fault_leaves_the_key_free_where_nothing_was_done_and_there_alone(
    everybody: Everybody, app: Flask, is_done: bool
) -> None:
    def fail() -> Response:
        db.session.execute(text("SELECT 1"))
        if is_done:
            db.session.commit()
        raise FaultError

    asked = app.test_request_context("/api/v1/memories", method="POST", headers=KEY)
    with asked, pytest.raises(FaultError):
        once.answered(token_of(everybody.own), fail, is_secret=False)

    assert (db.session.scalar(select(IdempotencyKey)) is not None) == is_done


def test_a_session_that_cannot_be_handed_over_is_asked_for_once_all_the_same(
    everybody: Everybody, redis: Redis
) -> None:
    with another_dispatcher_at_work():
        first = everybody.own.post("/sessions", headers=KEY)
    second = everybody.own.post("/sessions", headers=KEY)

    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json == second.json


@contextmanager
def another_dispatcher_at_work() -> Iterator[None]:
    """Have the lock that dispatchers take held, and nobody here wait long for it."""
    with impatient(), db.engine.connect() as other:
        other.execute(text("SELECT pg_advisory_xact_lock(hashtext('refine.dispatch'))"))
        yield


@contextmanager
def impatient() -> Iterator[None]:
    """Have every connection that is made meanwhile wait for locks but a moment."""

    def hurry(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")

    db.session.rollback()
    db.engine.dispose()
    event.listen(db.engine, "connect", hurry)
    try:
        yield
    finally:
        event.remove(db.engine, "connect", hurry)
        db.session.rollback()
        db.engine.dispose()
