"""Lives with simulated models: what a week counts, and which goals are missed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.corpus import Corpus, World
from bench.lives import Loss
from bench.simulated_models import SIMULATED_MODELS
from bench.survival import Outcome, Scale, Week, interval, missed_goals, share_of, simulate
from refine.settings import Settings

HOSTILE = [name for name, model in SIMULATED_MODELS.items() if model.is_hostile]
Unguard = Callable[[], Settings]
WORLDS: dict[str, Callable[[int, int], Corpus]] = {
    "plain": Corpus.of_plain_speech,
    "detailed": Corpus,
}


def lived(model: str, worlds: list[World], settings: Settings, weeks: int = 2) -> Outcome:
    return simulate(model, worlds, Scale(weeks=weeks, memories=16), settings)


def test_the_careful_model_unites_duplicates_and_loses_nothing(played):
    outcome = lived("careful", [Corpus.of_plain_speech(1, 0)], played)

    last = outcome.weeks[-1]
    assert missed_goals(outcome, is_hostile=False) == []
    assert last.duplicates > last.lookalikes_merged == 0
    assert share_of(outcome.at_random) < share_of(outcome.stored) == 1.0


def test_what_a_model_loses_is_told_with_the_edit_that_lost_it(unguard):
    world = Corpus.of_plain_speech(1, 0)

    outcome = lived("deleting", [world], unguard(), weeks=1)

    assert outcome.weeks[-1].refused == 0
    assert share_of(outcome.retrieved) <= share_of(outcome.stored) < share_of(outcome.untouched)
    said = {memory.text for memory in world.memories}
    assert outcome.losses
    assert all(loss.action == "delete" and loss.said in said for loss in outcome.losses)


def test_what_is_retired_counts_apart_from_what_is_lost(played):
    outcome = lived("retiring", [Corpus.of_plain_speech(1, 0)], played)

    last = outcome.weeks[-1]
    assert last.retired > 0
    assert last.stored + last.retired == last.questions
    assert outcome.losses == []


@pytest.mark.nightly
def test_the_careful_model_meets_its_goals_in_nine_languages(played):
    worlds = [Corpus(1, agent) for agent in range(9)]

    assert missed_goals(lived("careful", worlds, played, weeks=4), is_hostile=False) == []


@pytest.mark.nightly
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("model", HOSTILE)
def test_no_model_loses_more_than_without_the_rules(played, unguard, model, world):
    guarded = lived(model, [WORLDS[world](1, agent) for agent in range(2)], played, weeks=4)
    other = lived(model, [WORLDS[world](1, agent) for agent in range(2)], unguard(), weeks=4)

    assert share_of(guarded.stored) >= share_of(other.stored)
    assert guarded.weeks[-1].lowest_month >= 0.5
    assert guarded.weeks[-1].failed == 0


COUNTED = {
    "memories": 90,
    "tokens": 900,
    "questions": 100,
    "stored": 100,
    "retired": 0,
    "duplicates": 20,
    "duplicates_gone": 19,
    "lookalikes": 10,
    "lookalikes_merged": 1,
    "changes": 200,
    "refused": 150,
    "sessions": 20,
    "failed": 0,
    "rolled_back": 0,
}
GOOD = Week(week=2, lowest_month=0.5, **COUNTED)


@pytest.mark.parametrize(
    ("model", "reader", "figures", "missed"),
    [
        ("hostile", "none", {}, []),
        ("careful", "none", {}, []),
        ("hostile", "none", {"stored": 95}, []),
        ("hostile", "none", {"stored": 94}, ["94.0% stored"]),
        ("hostile", "none", {"stored": 90, "retired": 5}, []),
        ("hostile", "honest", {"stored": 96}, ["96.0% stored"]),
        ("hostile", "waves", {"stored": 88}, []),
        (
            "hostile",
            "none",
            {"lowest_month": 0.49},
            ["an agent kept 49% of its tokens over 30 days"],
        ),
        ("careful", "none", {"failed": 1}, ["1 sessions failed"]),
        ("careful", "waves", {"stored": 99}, ["99.0% stored"]),
        ("careful", "none", {"duplicates_gone": 18}, ["18 of 20 duplicates removed"]),
    ],
)
def test_each_missed_goal_is_named(model, reader, figures, missed):
    outcome = Outcome([replace(GOOD, **figures)], (), (), (), (), ())

    assert missed_goals(outcome, is_hostile=model == "hostile", reader=reader) == missed


def test_a_share_has_a_half_life_and_an_interval_over_agents():
    stored = [(10, 10), (5, 10), (10, 10), (5, 10)]
    loss = Loss(1, "delete", "Ruth keeps 3 hens.", "Ruth keeps 3 hens.", None)

    halved = Outcome([GOOD], [(1, 4)], (), (), (), [loss])

    assert halved.half_life == pytest.approx(1.0)
    assert replace(halved, stored=[(4, 4)]).half_life == float("inf")
    low, high = interval(stored)
    assert 0.5 <= low < share_of(stored) == 0.75 < high <= 1.0
    assert interval([(3, 3), (5, 5)]) == (1.0, 1.0)
