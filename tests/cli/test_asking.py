"""`refine doctor --ask MODEL`: what a model and its provider do, and what to set."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_model import ScriptedModel, send

MODEL = "test/model"

SEARCH = {"action": "search", "query": "harbour"}
COMPLETE = {"action": "complete", "summary": "tried"}
NO_JSON = {"arguments": "{action: search"}
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
BEFORE = ["provider", "list", "context", "https"]
AFTER = ["consent", "tool call", "result", "name", "cost"]
Ask = Callable[..., "subprocess.CompletedProcess[str]"]
Found = dict[str, tuple[str, str]]


@pytest.fixture
def ask(
    model: ScriptedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_under: Ask
) -> Ask:
    """Run the command in an empty folder, where nothing is installed."""
    monkeypatch.chdir(tmp_path)

    def ask(model_id: str = MODEL, **variables: str) -> "subprocess.CompletedProcess[str]":
        own = {"OPENROUTER_API_KEY": "secret-key", "OPENROUTER_BASE_URL": model.base_url}
        return run_under({**own, **variables}, "doctor", "--ask", model_id)

    return ask


def found(done: "subprocess.CompletedProcess[str]") -> Found:
    """Return the mark and the text of each line but the last."""
    lines = done.stdout.splitlines()[:-1]
    return {line[5:16].strip(): (line[:4].strip(), line[17:]) for line in lines}


def works(model: ScriptedModel, /, **fields: Any) -> None:
    model.say("YES, gladly.", **fields).calls(SEARCH, **fields).calls(COMPLETE, **fields)


def test_prints_a_line_for_each_question_if_everything_works_with_the_model(ask, model):
    model.catalogue = [FULL_ENTRY]
    works(model, usage=FULL_USAGE)

    done = ask()

    lines = found(done)
    assert (done.returncode, done.stderr, model.left) == (0, "", 0)
    assert list(lines) == BEFORE + AFTER
    assert {mark for mark, _ in lines.values()} == {"ok"}
    assert lines["list"][1] == "the provider lists it"
    assert "session shows" in lines["context"][1]
    assert lines["context"][1].startswith("200,000 tokens ")
    assert lines["consent"][1] == "answered YES as the first word, with 30 tokens of output"
    assert lines["tool call"][1] == "called search, with valid arguments"
    assert lines["result"][1] == "called complete, with valid arguments"
    assert lines["cost"][1] == "$0.0126 for this trial, as reported by the provider"
    assert done.stdout.endswith("`refine evaluate test/model` shows how well.\n")


def test_the_rehearsal_model_can_be_asked_without_a_provider(ask):
    done = ask("rehearsal/any", OPENROUTER_API_KEY="")

    assert done.returncode == 0
    assert found(done)["provider"] == ("ok", "the rehearsal model answers, without a provider")
    assert [mark for mark, _ in found(done).values()] == ["ok"] * 6


@pytest.mark.parametrize(
    ("answers", "name", "mark", "says"),
    [
        (["NO, thank you.", SEARCH, COMPLETE], "consent", "ok", "answered NO (which is an answer"),
        (["Certainly!", "YES.", SEARCH, COMPLETE], "consent", "warn", "only when asked again; "),
        ([SEARCH, SEARCH], "consent", "fix", "; choose a model that reasons less"),
        (["YES.", "I would search."], "tool call", "fix", "choose a model that calls tools"),
        (["YES.", SEARCH, "That is all."], "result", "fix", "choose a model that calls"),
        (["YES.", NO_JSON, SEARCH], "tool call", "warn", "(arguments must be valid JSON"),
        (["YES.", NO_JSON, {"action": "dance"}], "result", "fix", "(Invalid action 'dance')"),
    ],
)
def test_each_step_is_judged(ask, model, answers, name, mark, says):
    for answer in answers:
        if isinstance(answer, dict):
            model.calls(answer.get("arguments", answer))
        else:
            model.say(answer)

    done = ask()

    assert model.left == 0
    assert found(done)[name][0] == mark
    assert says in found(done)[name][1]
    assert done.returncode == (1 if mark == "fix" else 0)


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (400, {"param": "provider"}, "; set another REFINE_DIALECT (docs/operations.md lists"),
        (400, {"type": "exceed_context_size_error"}, "start the server with a larger"),
        (404, {"code": "model_not_found"}, "choose an id of the provider's list"),
        (404, {}, "check the model id, and that OPENROUTER_BASE_URL is the address"),
        (401, {}, "(check OPENROUTER_API_KEY)"),
    ],
)
def test_a_refusal_says_what_to_check(ask, model, status, error, says):
    model.answer(lambda handler: send(handler, status, {"error": error}, {"Retry-After": "90"}))

    done = ask()

    assert done.returncode == 1
    assert found(done)["consent"][0] == "fix"
    assert says in found(done)["consent"][1]
    assert "secret-key" not in done.stdout


@pytest.mark.parametrize(
    ("catalogue", "name", "mark", "says"),
    [
        (None, "list", "ok", "the provider has no list"),
        ([{"id": "x"}], "list", "warn", "the provider lists no model 'test/model'"),
        ([{"id": MODEL, "context_length": 4_096}], "context", "fix", "session shows: too few; st"),
        ([{"id": MODEL, "context_length": 8_192}], "context", "warn", "2,048 for an answer, about"),
        ([{"id": MODEL}], "cost", "warn", "neither the answers nor the list name a price: costs"),
        ([FULL_ENTRY], "cost", "ok", "$0.00135 for this trial, calculated from the provider's"),
    ],
)
def test_the_models_entry_in_the_list_is_reported(ask, model, catalogue, name, mark, says):
    model.catalogue = catalogue
    works(model)

    done = ask()

    assert found(done)[name][0] == mark
    assert says in found(done)[name][1]
    assert done.returncode == (1 if mark == "fix" else 0)
