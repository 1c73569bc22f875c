"""How a model is judged, by models of which everything is known."""

from dataclasses import replace

import pytest

from bench.evaluation import Score, evaluate
from refine.settings import Settings
from tests.scripted_model import ScriptedModel


def score(model_id: str, settings: Settings) -> Score:
    (only,) = evaluate(model_id, 1, 2, settings)
    return only


def test_the_careful_model_unites_all_duplicates_and_nothing_else(played):
    found = score("trial/careful", played)

    assert found.status == "completed"
    assert found.united == found.duplicates > 2
    assert found.wrong_merges == found.lost == found.malformed == 0
    assert found.tokens_after < found.tokens_before
    assert found.prompt_tokens > 100


def test_malformed_calls_are_counted(played, model):
    model.say("YES")
    model.calls(
        {"action": "forget"}, {"action": "delete"}, "no JSON", {"action": "delete", "id": 1}
    )
    model.call("complete", summary="Done.")

    found = score("test/model", _asking(model, played))

    assert (found.calls, found.malformed) == (5, 2)
    assert (found.changes, found.refused) == (2, 2)


@pytest.mark.parametrize(
    ("said", "status"), [(["NO"], "declined"), (["Ja, gerne.", "Ja."], "failed")]
)
def test_a_model_that_declines_or_gives_no_answer_is_a_result(played, model, said, status):
    for words in said:
        model.say(words)

    found = score("test/model", _asking(model, played))

    assert (found.status, found.calls, found.united) == (status, 0, 0)


def _asking(model: ScriptedModel, settings: Settings) -> Settings:
    return replace(settings, openrouter_base_url=model.base_url)
