"""Keys by which a request is done once: whose they are, what is kept, and for how long."""

from datetime import timedelta

import pytest

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import ApiToken, IdempotencyKey
from refine.models.clients.idempotency_key import ANSWERS_KEPT_FOR, StoredResponse
from tests import factories, sql

ANSWER = StoredResponse(201, '{"content": "ü🦉"}', "application/json")


def token_of_agent():
    agent = factories.agent()
    return ApiToken.mint(account=agent.account, agent=agent)[0]


def token_of_platform():
    return ApiToken.mint(account=factories.account())[0]


def test_an_answer_that_another_process_stored_meanwhile_is_found(app):
    token = token_of_agent()
    first, _ = IdempotencyKey.reserve(token, "k", "a request")
    first.store(ANSWER)
    db.session.flush()
    sealed = first.sealed_answer.hex()
    first.sealed_answer = first.answered_at = None
    db.session.commit()
    assert first.stored_response() is None
    sql.run(f"UPDATE idempotency_keys SET answered_at = now(), answer = '\\x{sealed}'")

    again, _ = IdempotencyKey.reserve(token, "k", "a request")

    assert again.stored_response() == ANSWER


def test_two_tokens_may_use_the_same_key(app):
    for token in (token_of_agent(), token_of_agent(), token_of_platform()):
        assert IdempotencyKey.reserve(token, "k", f"request of {token.id}")[1]


@pytest.mark.parametrize("token_of", [token_of_agent, token_of_platform])
def test_an_answer_is_kept_sealed_to_the_letter(app, token_of):
    taken, _ = IdempotencyKey.reserve(token_of(), "k", "a request")

    taken.store(ANSWER)
    db.session.flush()

    assert taken.stored_response() == ANSWER
    assert b"content" not in taken.sealed_answer
    assert taken.answered_at is not None


def test_the_same_request_of_two_agents_has_two_hashes(app):
    rows = [IdempotencyKey.reserve(token_of_agent(), "k", "a request")[0] for _ in range(2)]

    assert rows[0].request_hash != rows[1].request_hash


@pytest.mark.parametrize(
    ("late", "is_new"),
    [(timedelta(0), False), (-timedelta(seconds=1), False), (ANSWERS_KEPT_FOR, True)],
)
def test_after_a_day_a_key_is_new(app, late, is_new):
    token, other, at = token_of_agent(), token_of_agent(), clock.now()
    for owner, key in [(token, "k"), (token, "k2"), (other, "k")]:
        IdempotencyKey.reserve(owner, key, "a request", at)[0].store(ANSWER, at)

    taken, was_new = IdempotencyKey.reserve(token, "k", "a request", at + late)

    assert was_new == is_new
    assert taken.stored_response() == (None if is_new else ANSWER)
    assert len(db.session.scalars(db.select(IdempotencyKey)).all()) == 3  # no other key is freed


def test_keys_older_than_a_day_are_deleted(app):
    token, at = token_of_agent(), clock.now()
    for number in range(3):
        IdempotencyKey.reserve(token, f"k{number}", "a request", at + timedelta(hours=number))

    forgotten = IdempotencyKey.delete_expired(at + ANSWERS_KEPT_FOR + timedelta(hours=1))

    assert forgotten == 2
    assert db.session.scalars(db.select(IdempotencyKey.key)).all() == ["k2"]


def test_a_key_serves_one_request_alone(app):
    token = token_of_agent()
    IdempotencyKey.reserve(token, "k", "a request", clock.now())

    with pytest.raises(InvalidValue, match="was used for a different request"):
        IdempotencyKey.reserve(token, "k", "another request", clock.now())
