"""A request that is sent twice with one Idempotency-Key is done once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.models import AgentMemory, ApiToken, IdempotencyKey
from tests import factories

KEY = {"Idempotency-Key": "4f6c-1"}
NEW = {"content": "said once", "memory_type": "journal"}


def journals() -> int:
    db.session.rollback()
    kept = select(AgentMemory).where(AgentMemory.memory_type == "journal")
    return len(db.session.scalars(kept).all())


def test_repeats_the_answer_of_a_request_that_is_sent_again(world):
    first = world.own.post("/memories", json=NEW, headers=KEY)
    second = world.own.post("/memories", json=NEW, headers=KEY)

    assert (first.status_code, second.status_code) == (201, 201)
    assert first.data == second.data
    assert second.mimetype == "application/json"
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert journals() == 1


def test_only_a_change_with_a_key_is_repeated(world):
    answers = [world.own.get("/memories", headers=KEY) for _ in range(2)]
    answers += [world.own.post("/memories", json=NEW) for _ in range(2)]

    assert [answer.headers.get("Idempotency-Replayed") for answer in answers] == 4 * [None]
    assert db.session.scalar(select(IdempotencyKey)) is None
    assert journals() == 2


def test_answers_a_repeated_change_of_a_memory_as_the_first_time(world):
    old = world.own.post("/memories", json=NEW).json["id"]

    def twice(method: str, path: str, key: str, **sent: object) -> int:
        send = partial(world.own.open, path, method=method, headers={"Idempotency-Key": key})
        first, second = send(**sent), send(**sent)
        assert (first.status_code, first.data) == (second.status_code, second.data)
        return first.status_code

    assert twice("PATCH", f"/memories/{old}", "correct", json={"content": "said again"}) == 200
    new = f"/memories/{world.own.get('/memories?query=again').json['memories'][0]['id']}"
    assert twice("DELETE", f"{new}?for_good=true", "ask") == 202
    assert twice("DELETE", new, "forget") == 200
    with clock.ahead(timedelta(days=1, minutes=1)):
        assert twice("DELETE", f"{new}?for_good=true", "erase") == 200
    assert db.session.scalars(select(IdempotencyKey.key)).all() == ["erase"]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/memories", {**NEW, "content": "another"}), ("/sessions", NEW), ("/memories?x=1", NEW)],
)
def test_refuses_another_request_with_the_same_key(world, path, body):
    world.own.post("/memories", json=NEW, headers=KEY)

    answer = world.own.post(path, json=body, headers=KEY)

    assert answer.status_code == 422
    assert journals() == 1


def test_a_refused_request_frees_its_key(world):
    path = f"/sessions/{factories.session().id}/undo"
    wrong = world.own.post(path, headers=KEY)
    unfit = world.own.post("/memories", json={}, headers=KEY)

    right = world.own.post("/memories", json=NEW, headers=KEY)

    assert (wrong.status_code, unfit.status_code, right.status_code) == (404, 422, 201)


def test_refuses_a_request_that_was_interrupted(world):
    world.own.post("/memories", json=NEW, headers=KEY)
    row = db.session.scalars(select(IdempotencyKey)).one()
    row.sealed_answer = row.answered_at = None
    db.session.commit()

    answer = world.own.post("/memories", json=NEW, headers=KEY)

    assert answer.status_code == 409
    assert answer.headers["Retry-After"] == "5"
    assert journals() == 1


def test_runs_one_of_many_simultaneous_requests(world):
    def send(_number: int) -> int:
        return world.own.post("/memories", json=NEW, headers=KEY).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses = set(pool.map(send, range(6)))

    assert statuses == {201}
    assert journals() == 1


def test_shows_a_minted_token_once(world):
    path = f"/agents/{world.agent.id}/tokens"

    first = world.platform.post(path, headers=KEY)
    second = world.platform.post(path, headers=KEY)

    assert (first.status_code, second.status_code) == (201, 201)
    assert second.json == {**first.json, "token": None}
    revoked = world.platform.delete(f"/tokens/{second.json['id']}")
    assert revoked.status_code == 204
    minted = select(ApiToken).where(ApiToken.agent_id == world.agent.id)
    assert len(db.session.scalars(minted).all()) == 2
