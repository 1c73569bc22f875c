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
from tests.providers.rules import PROVIDERS
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


def client(model: ScriptedModel, dialect: str) -> provider.Provider:
    return provider.Provider(model.base_url, "key", dialects.named(dialect))


def ask(model: ScriptedModel, entry: dict[str, Any]) -> Reply:
    """Ask a server that answers each attempt with the entry."""
    payload = entry["body"] if isinstance(entry["body"], str) else json.dumps(entry["body"])
    for _ in range(provider.MAX_ATTEMPTS):
        model.answer(
            lambda handler: send(handler, entry["status"], payload.encode(), entry["headers"])
        )
    return client(model, entry["provider"]).generate(
        MODEL,
        MESSAGES,
        [DEFINITION],
        Privacy(session_id="session-1", account_ref="account-1"),
        deadline=time.monotonic() + 30,
    )


# -- replies -------------------------------------------------------------------------------------


def filled_in(expected: Any, calls: tuple[ToolCall, ...]) -> Any:
    """Put the ids that were made up in place of null."""
    pairs = zip(expected, calls, strict=True)
    return [{**each, "id": each["id"] or call.id} for each, call in pairs]


@pytest.mark.parametrize("entry", REPLIES, ids=ids)
def test_a_reply_is_read(model: ScriptedModel, entry: dict[str, Any]) -> None:
    expected = entry["reply"]

    reply = ask(model, entry)

    assert len(model.requests) == 1
    assert (reply.text, reply.is_cut) == (expected["text"], expected["is_cut"])
    assert reply.model == expected["model"]
    usage = expected["usage"]
    cost = usage["cost_usd"] if usage["cost_usd"] is None else Decimal(usage["cost_usd"])
    assert reply.usage.cost_usd == cost
    tokens = ("prompt_tokens", "cached_tokens", "completion_tokens")
    assert [getattr(reply.usage, name) for name in tokens] == [usage[name] for name in tokens]


@pytest.mark.parametrize("entry", [e for e in REPLIES if e["reply"]["tool_calls"]], ids=ids)
def test_tool_calls_are_read_or_have_a_problem(model: ScriptedModel, entry: dict[str, Any]) -> None:
    reply = ask(model, entry)

    for call, expected in zip(reply.tool_calls, entry["reply"]["tool_calls"], strict=True):
        assert call.name == expected["name"]
        is_known = expected["id"] is not None
        assert call.id == expected["id"] if is_known else INVENTED_ID.fullmatch(call.id), call.id
        problem = expected.get("problem")
        assert call.problem is None if problem is None else problem in (call.problem or "")
        assert problem is not None or call.arguments == expected["arguments"]
        assert "canary" not in (call.problem or "")


@pytest.mark.parametrize("entry", REPLIES, ids=ids)
def test_the_history_keeps_what_the_provider_wants_back(
    model: ScriptedModel, entry: dict[str, Any]
) -> None:
    reply = ask(model, entry)

    for name, value in entry["reply"]["kept"].items():
        is_calls = name == "tool_calls"
        expected = filled_in(value, reply.tool_calls) if is_calls else value
        if name == "content" and not reply.tool_calls:
            expected = value or "(no answer)"
        assert reply.message[name] == expected
    assert not reply.message.keys() & set(entry["reply"]["dropped"])


# -- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", FAULTS, ids=ids)
def test_a_fault_is_named_and_retried_where_that_may_help(
    model: ScriptedModel, entry: dict[str, Any]
) -> None:
    with pytest.raises(ProviderError) as raised:
        ask(model, entry)

    expected = entry["fault"]
    assert raised.value.kind == expected["kind"]
    assert len(model.requests) == (provider.MAX_ATTEMPTS if expected["is_retried"] else 1)


@pytest.mark.parametrize("entry", FAULTS, ids=ids)
def test_a_fault_tells_the_codes_of_the_provider_and_never_its_words(
    model: ScriptedModel, entry: dict[str, Any]
) -> None:
    with pytest.raises(ProviderError) as raised:
        ask(model, entry)

    message = str(raised.value)
    assert "canary" not in message
    for words in entry["fault"]["says"]:
        assert words in message


# -- the corpus itself -----------------------------------------------------------------------------


def test_the_corpus_is_large_and_every_entry_has_a_source() -> None:
    assert len(CORPUS) >= 60
    for entry in CORPUS:
        assert re.fullmatch(r"https://[\w./#-]+", entry["source"]), ids(entry)


def test_every_provider_has_entries_and_no_two_have_one_name() -> None:
    assert {entry["provider"] for entry in CORPUS} == set(PROVIDERS) == set(dialects.NAMES)
    assert max(Counter(map(ids, CORPUS)).values()) == 1


def test_every_entry_is_either_a_reply_or_a_fault() -> None:
    for entry in CORPUS:
        assert ("reply" in entry) != ("fault" in entry), ids(entry)
