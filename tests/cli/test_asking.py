"""`refine doctor --ask MODEL`: what a model and its provider do, and what to set."""

import json
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.commands import refine_here
from tests.scripted_model import ScriptedModel, send

MODEL = "test/model"

SEARCH = {"action": "search", "query": "harbour"}
COMPLETE = {"action": "complete", "summary": "tried"}
FULL_USAGE = {
    "prompt_tokens": 1_200,
    "completion_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 900},
    "completion_tokens_details": {"reasoning_tokens": 10},
    "cost": 0.0042,
}
FULL_ENTRY = {
    "id": MODEL,
    "context_length": 200_000,
    "supported_parameters": ["tools", "max_tokens"],
    "pricing": {"prompt": "0.000003", "completion": "0.000015"},
}
BEFORE = ["provider", "list", "context", "privacy", "model"]
AFTER = ["consent", "tool call", "result", "name", "cost"]
NOT_PRICED = "neither the answers nor the list name a price: costs stay unknown, and a monthly"

Ask = Callable[..., "subprocess.CompletedProcess[str]"]
Found = dict[str, tuple[str, str]]


@pytest.fixture
def ask(
    model: ScriptedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ask:
    """Run the command in an empty folder, where nothing is installed."""
    monkeypatch.chdir(tmp_path)

    def ask(model_id: str = MODEL, **variables: str) -> "subprocess.CompletedProcess[str]":
        own = {"OPENROUTER_API_KEY": "secret-key", "OPENROUTER_BASE_URL": model.base_url}
        return refine_here(
            *("doctor", "--ask", model_id),
            environ={**own, **variables},
            stdin="",
            monkeypatch=monkeypatch,
            capsys=capsys,
        )

    return ask


def found(done: "subprocess.CompletedProcess[str]") -> Found:
    """Return the mark and the text of each line but the last."""
    lines = done.stdout.splitlines()[:-1]
    return {line[5:16].strip(): (line[:4].strip(), line[17:]) for line in lines}


def works(model: ScriptedModel, /, **fields: Any) -> None:
    model.say("YES, gladly.", **fields).calls(SEARCH, **fields).calls(COMPLETE, **fields)


# -- all is well ----------------------------------------------------------------------------------


def test_prints_a_line_for_each_question_if_everything_works_with_the_model(
    ask: Ask, model: ScriptedModel
) -> None:
    model.catalogue = [FULL_ENTRY]
    works(model, usage=FULL_USAGE)

    done = ask()

    lines = found(done)
    assert (done.returncode, done.stderr, model.left) == (0, "", 0)
    assert list(lines) == BEFORE + AFTER
    assert {mark for mark, _ in lines.values()} == {"ok", "ask"}
    assert lines["list"][1] == "listed as test/model, with tools"
    assert lines["context"][1].startswith("200,000 tokens, as listed: 8,192 for an answer, about")
    assert lines["consent"][1] == (
        "answered YES as the first word, with 30 tokens of output, 10 for reasoning"
    )
    assert lines["tool call"][1] == "called search, with valid arguments"
    assert lines["result"][1].endswith("called complete, with valid arguments")
    assert lines["cost"][1] == "$0.0126 for this trial, as reported by the provider"
    assert done.stdout.endswith("`refine evaluate test/model` shows how well.\n")


def test_the_rehearsal_model_can_be_asked_without_a_provider(ask: Ask) -> None:
    done = ask("rehearsal/any", OPENROUTER_API_KEY="")

    assert done.returncode == 0
    assert found(done)["provider"] == ("ok", "the rehearsal model answers, without a provider")
    assert found(done)["model"][1].endswith("free of charge")
    assert [mark for mark, _ in found(done).values()] == ["ok", "ask", *["ok"] * 5]


def test_the_model_is_asked_as_sessions_ask(ask: Ask, model: ScriptedModel) -> None:
    thoughts = {"reasoning_details": [{"signature": "signed"}]}
    call = {"id": "c1", "type": "function", "extra": "kept"}
    call["function"] = {"name": "refinement", "arguments": json.dumps(SEARCH)}
    model.say("YES.").reply({"content": None, "tool_calls": [call], **thoughts}).calls(COMPLETE)

    ask()

    consent, search, complete = model.requests
    assert [each["tools"][0]["function"]["name"] for each in model.requests] == ["refinement"] * 3
    assert consent["messages"][1]["content"].startswith("# Your core memories")
    assert "YES or NO as the first word" in consent["messages"][1]["content"]
    assert search["messages"][:2] == consent["messages"]
    assert complete["messages"][:4] == search["messages"]
    assert complete["messages"][4] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [call],
        **thoughts,
    }
    result = json.loads(complete["messages"][5]["content"])
    assert (result["type"], result["count"]) == ("search_results", 2)
    assert consent["provider"]["zdr"] is True


# -- the steps ------------------------------------------------------------------------------------


def cut(model: ScriptedModel, tokens: int = 8_192) -> None:
    usage = {"prompt_tokens": 900, "completion_tokens": tokens}
    model.say("Hm", finish_reason="length", usage=usage)


def is_cut_twice(model: ScriptedModel) -> None:
    cut(model)
    cut(model, 16_384)


def says_no(model: ScriptedModel) -> None:
    model.say("NO, thank you.").calls(SEARCH).calls(COMPLETE)


def answers_in_other_words(model: ScriptedModel) -> None:
    model.say("Certainly!")
    works(model)


def calls_the_tool_twice(model: ScriptedModel) -> None:
    model.calls(SEARCH).calls(SEARCH)


def calls_nothing(model: ScriptedModel) -> None:
    model.say("YES.").say("I would search now.")


def calls_nothing_more(model: ScriptedModel) -> None:
    model.say("YES.").calls(SEARCH).say("That is all.")


def deletes(model: ScriptedModel) -> None:
    model.say("YES.").calls({"action": "delete", "id": 101}).calls(COMPLETE)


def writes_no_json_once(model: ScriptedModel) -> None:
    model.say("YES.").calls("{action: search").calls(SEARCH)


def never_writes_a_valid_call(model: ScriptedModel) -> None:
    model.say("YES.").calls("{action: search").calls({"action": "dance"})


@pytest.mark.parametrize(
    ("plays", "name", "mark", "says"),
    [
        (is_cut_twice, "consent", "fix", "cut after 16,384 tokens of output, of 16,384 allowed"),
        (says_no, "consent", "ok", "answered NO (which is an answer too) as the first word"),
        (answers_in_other_words, "consent", "warn", "did not begin with YES or NO, with 10 "),
        (calls_the_tool_twice, "consent", "fix", "called the tool instead; choose another model"),
        (calls_nothing, "tool call", "fix", "answered in words; choose a model that calls tools"),
        (calls_nothing_more, "result", "warn", "answered in words, where sessions need another"),
        (deletes, "tool call", "warn", "called delete, with valid arguments, when it was asked"),
        (writes_no_json_once, "tool call", "warn", "cannot be used (arguments must be valid JSON"),
        (
            never_writes_a_valid_call,
            "result",
            "fix",
            "no call can be used (Invalid action 'dance')",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_step_is_judged(
    ask: Ask,
    model: ScriptedModel,
    plays: Callable[[ScriptedModel], None],
    name: str,
    mark: str,
    says: str,
) -> None:
    plays(model)

    done = ask()

    assert model.left == 0
    assert found(done)[name][0] == mark
    assert says in found(done)[name][1]
    assert done.returncode == (1 if mark == "fix" else 0)


# -- refusals -------------------------------------------------------------------------------------


def refusing(
    model: ScriptedModel,
    is_refused: Callable[[dict[str, Any]], bool],
    error: Any,
    status: int = 400,
) -> None:
    """Play a server that refuses some requests, and a model that does well with the others."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = model.requests[-1]
        if is_refused(asked):
            send(handler, status, {"error": error})
        else:
            send(handler, 200, _next_answer(asked))

    for _ in range(20):
        model.answer(answer)


def _next_answer(asked: dict[str, Any]) -> dict[str, Any]:
    turn = sum(message["role"] == "assistant" for message in asked["messages"])
    message: dict[str, Any] = {"content": "YES."}
    if turn:
        arguments = json.dumps([SEARCH, COMPLETE][turn - 1])
        function = {"name": "refinement", "arguments": arguments}
        call = {"id": f"c{turn}", "type": "function", "function": function}
        message = {"content": None, "reasoning_content": "hm", "tool_calls": [call]}
    return {"model": asked["model"], "choices": [{"message": message}]}


def repeats_thoughts(asked: dict[str, Any]) -> bool:
    return any("reasoning_content" in message for message in asked["messages"])


@pytest.mark.parametrize(
    ("is_refused", "error", "step", "dialect"),
    [
        (lambda asked: "provider" in asked, {"param": "provider"}, "consent", "plain"),
        (repeats_thoughts, {"type": "invalid_request_error"}, "result", "alibaba"),
        (
            lambda asked: "max_tokens" in asked or "provider" in asked,
            {"message": "no"},
            "consent",
            "openai",
        ),
    ],
)
def test_a_refusal_leads_to_the_dialect_in_which_all_is_accepted(
    ask: Ask,
    model: ScriptedModel,
    is_refused: Callable[[dict[str, Any]], bool],
    error: Any,
    step: str,
    dialect: str,
) -> None:
    refusing(model, is_refused, error)

    first = ask()
    then = ask(REFINE_DIALECT=dialect)

    mark, said = found(first)[step]
    assert (first.returncode, mark) == (1, "fix")
    assert "HTTP 400" in said
    assert said.endswith(f"; set REFINE_DIALECT={dialect}, in which every request was accepted")
    assert then.returncode == 0


def test_a_server_that_takes_no_tools_is_told_from_one_with_another_dialect(
    ask: Ask, model: ScriptedModel
) -> None:
    refusing(model, lambda asked: "tools" in asked, {"type": "BadRequestError"})

    done = ask()

    assert done.returncode == 1
    assert (
        "; the same request without a tool was accepted; choose a model"
        in found(done)["consent"][1]
    )


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (400, {"code": "invalid_model"}, "other dialects were refused too; check the model id"),
        (400, {"type": "exceed_context_size_error"}, "give it a larger one"),
        (404, {"code": "model_not_found"}, "choose an id of the provider's list"),
        (404, {}, "check the model id, and that OPENROUTER_BASE_URL is the address"),
        (401, {}, "(check OPENROUTER_API_KEY)"),
    ],
)
def test_other_refusals_say_what_to_check(
    ask: Ask, model: ScriptedModel, status: int, error: Any, says: str
) -> None:
    refusing(model, lambda _: True, error, status)

    done = ask()

    assert done.returncode == 1
    assert found(done)["consent"][0] == "fix"
    assert says in found(done)["consent"][1]
    assert "secret-key" not in done.stdout


def test_a_limit_of_the_key_is_no_question_of_dialect(ask: Ask, model: ScriptedModel) -> None:
    model.http(429, retry_after="90")

    done = ask()

    assert found(done)["consent"][1].endswith(
        "wait, then ask again; if that does not help, the key's limits are too low"
    )
    assert len(model.requests) == 1


def test_a_wrong_key_is_told_without_asking_the_model(ask: Ask, model: ScriptedModel) -> None:
    model.catalogue = lambda handler: handler.send_error(401)

    done = ask()

    assert (done.returncode, model.requests) == (1, [])
    assert list(found(done)) == ["provider"]
    assert found(done)["provider"][1].endswith("HTTP 401 (check OPENROUTER_API_KEY)")


def test_without_a_key_it_says_what_is_missing(ask: Ask) -> None:
    done = ask(OPENROUTER_API_KEY="")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("refine: no API key: set OPENROUTER_API_KEY")


# -- what the list and the answers tell -----------------------------------------------------------


@pytest.mark.parametrize(
    ("catalogue", "answers_as", "mark", "says"),
    [
        ([], "test/model-2026-01-31", "ok", "answers as test/model-2026-01-31: the same model"),
        ([], "other-2", "fix", "other-2 answered, not test/model"),
        (
            [{"id": name, "canonical_slug": name} for name in (MODEL, f"{MODEL}-0528")],
            f"{MODEL}-0528",
            "fix",
            "another model answers; give agents its own id",
        ),
    ],
)
def test_the_name_that_answers_is_checked_as_in_sessions(
    ask: Ask,
    model: ScriptedModel,
    catalogue: list[dict[str, Any]],
    answers_as: str,
    mark: str,
    says: str,
) -> None:
    model.catalogue = catalogue
    works(model, model=answers_as)

    done = ask()

    assert found(done)["name"][0] == mark
    assert says in found(done)["name"][1]
    assert done.returncode == (1 if mark == "fix" else 0)


@pytest.mark.parametrize(
    ("catalogue", "name", "mark", "says"),
    [
        (None, "list", "ok", "the provider has no list of models"),
        ([{"id": "x"}], "list", "warn", "'test/model'; if it is refused, choose one from the list"),
        (
            [{"id": MODEL, "supported_parameters": ["stop"]}],
            "list",
            "warn",
            "listed as test/model, but without tools",
        ),
        ([{"id": MODEL}], "context", "warn", "128,000 tokens are assumed, because the provider"),
        ([{"id": MODEL, "context_length": 4_096}], "context", "fix", "session shows: too few; st"),
        ([{"id": MODEL, "context_length": 8_192}], "context", "warn", "2,048 for an answer, about"),
        ([{"id": MODEL}], "cost", "warn", NOT_PRICED),
        (
            [FULL_ENTRY],
            "cost",
            "ok",
            "$0.00135 for this trial, calculated from the provider's list",
        ),
    ],
)
def test_the_models_entry_in_the_list_is_reported(
    ask: Ask, model: ScriptedModel, catalogue: Any, name: str, mark: str, says: str
) -> None:
    model.catalogue = catalogue
    works(model)

    done = ask()

    assert found(done)[name][0] == mark
    assert says in found(done)[name][1]
    assert done.returncode == (1 if mark == "fix" else 0)


@pytest.mark.parametrize(
    ("pricing", "mark", "says"),
    [
        ({"prompt": 0, "completion": 0}, "ok", "$0 for this trial, as reported by the provider"),
        (
            FULL_ENTRY["pricing"],
            "warn",
            "as reported by the provider, but no list names a price of 0: if",
        ),
        (None, "warn", "if it is free, set its price to 0 in REFINE_PRICES; else no cost cap"),
    ],
)
def test_a_cost_of_0_is_believed_where_the_model_is_listed_as_free(
    ask: Ask, model: ScriptedModel, pricing: Any, mark: str, says: str
) -> None:
    model.catalogue = [{**FULL_ENTRY, "pricing": pricing}]
    works(model, usage={**FULL_USAGE, "cost": 0})

    line = found(ask())["cost"]

    assert line[0] == mark
    assert says in line[1]
