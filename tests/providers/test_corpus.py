"""Replies and faults that providers were seen to send, each through the real client over HTTP.

An entry of the corpus says what Refine makes of it. Its text contains the word ``canary`` where a
memory or a model's words would stand, so that no message may contain it.
"""

import json
import re
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from refine.errors import ProviderError
from refine.llm import dialects, provider
from refine.llm.messages import Privacy, Reply, ToolCall
from refine.tools.refinement import DEFINITION
from tests.providers.providers import PROVIDERS
from tests.scripted_model import ScriptedModel, send

FILES = sorted((Path(__file__).parent / "corpus").glob("*.json"))
CORPUS: list[dict[str, Any]] = [entry for file in FILES for entry in json.loads(file.read_text())]
REPLIES = [entry for entry in CORPUS if "reply" in entry]
FAULTS = [entry for entry in CORPUS if "fault" in entry]

MODEL = "test/model"
MESSAGES = [
    {"role": "system", "content": "You are Wren."},
    {"role": "user", "content": "A memory of canary-words, and a question."},
]
# ids that Refine makes up must suit every provider
INVENTED_ID = re.compile("[A-Za-z0-9]{9}")


def ids(entry: dict[str, Any]) -> str:
    return f"{entry['provider']}: {entry['name']}"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "_BACKOFF_SECONDS", (0.0, 0.0))


def ask(model: ScriptedModel, entry: dict[str, Any]) -> Reply:
    """Ask a server that answers each attempt with the entry."""
    payload = entry["body"] if isinstance(entry["body"], str) else json.dumps(entry["body"])
    for _ in range(provider.MAX_ATTEMPTS):
        model.answer(
            lambda handler: send(handler, entry["status"], payload.encode(), entry["headers"])
        )
    client = provider.Provider(model.base_url, "key", dialects.named(entry["provider"]))
    return client.generate(
        MODEL,
        MESSAGES,
        [DEFINITION],
        Privacy(session_id="session-1", account_ref="account-1"),
        deadline=time.monotonic() + 30,
    )


@pytest.mark.parametrize("entry", REPLIES, ids=ids)
def test_a_reply_is_read_and_the_history_keeps_the_fields_that_the_provider_needs(model, entry):
    expected = entry["reply"]

    reply = ask(model, entry)

    assert len(model.requests) == 1
    assert (reply.text, reply.is_cut) == (expected["text"], expected["is_cut"])
    assert reply.model == expected["model"]
    usage = {name: getattr(reply.usage, name) for name in expected["usage"]}
    cost = expected["usage"]["cost_usd"]
    assert usage == {**expected["usage"], "cost_usd": None if cost is None else Decimal(cost)}
    for call, written in zip(reply.tool_calls, expected["tool_calls"], strict=True):
        check_call(call, written)
    for name, value in expected["kept"].items():
        assert reply.message[name] == as_repeated(name, value, reply)
    assert not reply.message.keys() & set(expected["dropped"])


def check_call(call: ToolCall, expected: dict[str, Any]) -> None:
    """Check that the call is read, or has the expected problem."""
    assert call.name == expected["name"]
    is_known = expected["id"] is not None
    assert call.id == expected["id"] if is_known else INVENTED_ID.fullmatch(call.id), call.id
    problem = expected.get("problem")
    assert call.problem is None if problem is None else problem in (call.problem or "")
    assert problem is not None or call.arguments == expected["arguments"]
    assert "canary" not in (call.problem or "")


def as_repeated(name: str, value: Any, reply: Reply) -> Any:
    """Return a kept field with the ids that were made up, and words for an empty answer."""
    if name == "tool_calls":
        pairs = zip(value, reply.tool_calls, strict=True)
        return [{**each, "id": each["id"] or call.id} for each, call in pairs]
    return value or "(no answer)" if name == "content" and not reply.tool_calls else value


@pytest.mark.parametrize("entry", FAULTS, ids=ids)
def test_a_fault_names_the_providers_codes_and_never_quotes_it(model, entry):
    with pytest.raises(ProviderError) as raised:
        ask(model, entry)

    expected, message = entry["fault"], str(raised.value)
    assert raised.value.kind == expected["kind"]
    assert len(model.requests) == (provider.MAX_ATTEMPTS if expected["is_retried"] else 1)
    assert "canary" not in message
    assert [words for words in expected["says"] if words not in message] == []


def test_every_entry_of_every_provider_has_a_source_and_a_name_of_its_own():
    assert len(CORPUS) == len(REPLIES) + len(FAULTS) >= 60
    assert {entry["provider"] for entry in CORPUS} == set(PROVIDERS) == set(dialects.NAMES)
    assert max(Counter(map(ids, CORPUS)).values()) == 1
    for entry in CORPUS:
        assert re.fullmatch(r"https://[\w./#-]+", entry["source"]), ids(entry)
