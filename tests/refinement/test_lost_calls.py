"""Calls of a session of which nothing can be used: which count, and for how much."""

import json
import threading
import time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler

import pytest

from refine.llm import provider
from refine.models import RefinementSession
from tests.refinement.conftest import World

YES = "YES, gladly."
BILLED = {"prompt_tokens": 100, "completion_tokens": 10, "cost": 0.75}
WORDS = {"finish_reason": "stop", "message": {"role": "assistant", "content": YES}}
PRICING = {"prompt": "0.000003", "completion": "0.000015"}
UNUSABLE = {
    "no choices": {"choices": []},
    "a choice without a message": {"choices": [{"finish_reason": "stop"}]},
    "an error": {"error": {"code": 502, "message": "canary"}, "choices": [WORDS]},
    "an error of the choice": {"choices": [{**WORDS, "finish_reason": "error"}]},
}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.0, 0.0))


def counted(session: RefinementSession) -> tuple[int, Decimal, int]:
    return session.llm_calls, session.cost_usd, session.unpriced_calls


def breaks_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [{"message": {"content": "YES')
    handler.close_connection = True


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


@pytest.mark.parametrize("body", UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_answer_counts_its_stated_cost(world, body):
    for _ in range(3):
        world.model.http(200, {**body, "usage": BILLED})

    session = world.refine()

    assert session.status == "failed"
    assert counted(session) == (3, Decimal("2.25"), 0)
    assert (session.prompt_tokens, session.completion_tokens) == (300, 30)
    assert world.records(session)[-1].data["cost_usd"] == "2.250000"


def test_the_attempts_before_an_answer_count_beside_it(world):
    world.model.http(200, {"choices": [], "usage": BILLED}).say("NO", usage=BILLED)

    session = world.refine()

    assert session.status == "declined"
    assert counted(session) == (2, Decimal("1.5"), 0)


@pytest.mark.parametrize("answer", [breaks_off, hangs_up])
def test_an_answer_that_never_came_whole_has_an_unknown_cost(world, answer):
    for _ in range(3):
        world.model.answer(answer)

    assert counted(world.refine()) == (3, 0, 3)


def test_an_answer_after_the_time_limit_has_an_unknown_cost(world):
    world.variables = {"REFINE_MAX_SECONDS": "1"}
    world.model.say(YES).meanwhile(lambda: time.sleep(1.5))

    session = world.refine()

    assert session.error_kind == "timeout"
    assert counted(session) == (1, 0, 1)


def test_an_answer_that_a_stop_did_not_wait_for_has_an_unknown_cost(world):
    asked, answered = threading.Event(), threading.Event()
    world.is_stopping = asked.is_set
    world.model.say(YES).meanwhile(lambda: (asked.set(), answered.wait(5)))

    session = world.refine()
    answered.set()

    assert session.status == "queued"
    assert counted(session) == (1, 0, 1)


def test_a_rehearsal_is_free_even_if_it_is_stopped(world):
    world.agent.model_id, world.agent.account.slug = "rehearsal/ada", "demo"
    world.is_stopping = lambda: "refine-llm-call" in {each.name for each in threading.enumerate()}

    session = world.refine()

    assert session.status == "queued"
    assert counted(session) == (1, 0, 0)


def test_with_a_price_a_lost_answer_is_taken_to_be_as_long_as_it_could_be(world):
    world.model.catalogue = [{"id": "test/model", "pricing": PRICING}]
    world.model.answer(hangs_up).say("NO")

    session = world.refine()

    sent = json.dumps([world.model.requests[0][name] for name in ("messages", "tools")])
    assert len(sent) / 4 < session.prompt_tokens - 100 < len(sent) / 2
    assert session.completion_tokens == 8_192 + 10
    prompt_usd = session.prompt_tokens * Decimal("0.000003")
    assert counted(session) == (2, prompt_usd + Decimal("0.12303"), 0)


def says_that_it_failed(world: World) -> None:
    for body in UNUSABLE.values():
        if "error" in json.dumps(body):
            world.model.http(200, body)
    world.model.http(502)


def refuses(world: World) -> None:
    world.model.http(503).http(429).http(401)


def is_not_there(world: World) -> None:
    world.variables = {"OPENROUTER_BASE_URL": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize("fails", [says_that_it_failed, refuses, is_not_there])
def test_calls_that_were_refused_or_never_sent_cost_nothing(world, fails):
    fails(world)

    session = world.refine()

    assert session.status == "failed"
    assert counted(session) == (0, 0, 0)
