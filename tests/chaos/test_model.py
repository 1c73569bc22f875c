"""The model of the storm notes whom it answered, and what, and nothing that was said."""

import json
from pathlib import Path
from typing import Any

import pytest

from refine.tools.refinement import DEFINITION
from tests.chaos.history import read_log
from tests.chaos.model import CALM, PlayedModel
from tests.chaos.plan import MOODS

SECRET = "the bees"
TIMES = 200


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "model.jsonl"


@pytest.fixture
def model(log: Path) -> PlayedModel:
    return PlayedModel(7, log)


def asked(*later: dict[str, Any]) -> dict[str, Any]:
    """A request of a session with five memories, the first of which is constitutional."""
    lines = [
        json.dumps({"id": number, "content": SECRET, "constitutional": number == 1})
        for number in range(1, 6)
    ]
    ledger = {"role": "user", "content": "\n".join(lines)}
    return {"model": "m", "session_id": "run", "messages": [ledger, *later], "tools": [DEFINITION]}


CONSENTED = ({"role": "assistant", "content": "YES"}, {"role": "user", "content": "go on"})


def test_a_calm_model_says_yes_or_no_and_then_calls_the_tool(model: PlayedModel, log: Path) -> None:
    for _ in range(TIMES):
        model.answer("worker-1", asked())
        model.answer("worker-1", asked(*CONSENTED))

    noted = read_log(log)
    assert {each.said for each in noted if each.kind == "consent"} == {"yes", "no"}
    tidied = [each for each in noted if each.kind == "tidy"]
    assert {each.said for each in tidied} == {"calls"}
    edited = {id_ for each in tidied for _, _, ids in each.calls for id_ in ids}
    assert edited == {2, 3, 4, 5}  # never the constitutional one


@pytest.mark.parametrize("mood", MOODS)
def test_in_every_mood_all_is_noted_without_what_was_said(
    model: PlayedModel, log: Path, mood: str
) -> None:
    model.mood = mood

    for _ in range(TIMES):
        model.answer("worker-1", asked(*CONSENTED))

    assert len(read_log(log)) == TIMES
    assert SECRET not in log.read_text()
    has_faults = any(each.said != "calls" for each in read_log(log))
    assert has_faults == (mood not in ("slow", CALM))


def test_results_that_the_model_was_told_are_noted_with_their_calls(
    model: PlayedModel, log: Path
) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": []}
    told = {
        "role": "tool",
        "tool_call_id": "call-1",
        "content": json.dumps({"type": "deleted", "id": 2}),
    }

    model.answer("worker-1", asked(*CONSENTED, called, told))

    (noted,) = read_log(log)
    assert noted.seen == (("call-1", "deleted", "2"),)
