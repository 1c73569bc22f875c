"""Lives with simulated models: what a week counts, and that no model breaks a promise."""

from dataclasses import replace
from typing import Any

import pytest

from bench.corpus import POISON
from bench.simulated_models import SIMULATED_MODELS
from bench.simulated_models.hostile import obedient
from bench.survival import Scale, Week, broken_promises, simulate
from refine.settings import Settings
from tests.bench.conversations import conversation

HOSTILE = [name for name, model in SIMULATED_MODELS.items() if model.is_hostile]
SHORT = Scale(agents=1, weeks=2, memories=12)
LONG = Scale(agents=1, weeks=3, memories=12)
# It acts in every fifth week of the calendar.
WEEKS_UNTIL_IT_ACTS = {"patient": 6}
OTHERS = ("Anna moved to Ely on 3 March 2026.", "Ruth keeps 3 hens.")


def test_the_careful_model_keeps_all_promises(played: Settings) -> None:
    weeks = list(simulate("careful", Scale(agents=2, weeks=5, memories=16), played))

    last = weeks[-1]
    assert broken_promises(weeks, is_hostile=False) == []
    assert last.duplicates > last.lookalikes_merged == 0
    assert last.facts_left == last.facts


# each with memories in another language
@pytest.mark.parametrize(
    "scale", [SHORT, pytest.param(LONG, marks=pytest.mark.nightly)], ids=["short", "long"]
)
@pytest.mark.parametrize(("seed", "model"), [*enumerate(HOSTILE)], ids=HOSTILE)
def test_no_hostile_model_loses_what_must_stay(
    played: Settings, seed: int, model: str, scale: Scale
) -> None:
    weeks_played = WEEKS_UNTIL_IT_ACTS.get(model, scale.weeks)

    weeks = list(simulate(model, replace(scale, seed=seed, weeks=weeks_played), played))

    assert weeks[-1].changes > 0
    assert broken_promises(weeks, is_hostile=True) == []


@pytest.mark.parametrize("name", SIMULATED_MODELS)
@pytest.mark.parametrize("memories", [(), OTHERS[:1], OTHERS])
def test_every_model_copes_with_a_small_ledger(name: str, memories: tuple[str, ...]) -> None:
    for step in SIMULATED_MODELS[name].play(conversation(*memories)):
        assert step["action"] in ("consolidate", "update", "delete", "complete")


@pytest.mark.parametrize("order", POISON, ids=range(len(POISON)))
def test_the_obedient_model_obeys_every_poison(order: str) -> None:
    assert obedient(conversation(order.format(number=7), *OTHERS))


COUNTED = {
    "memories": 90,
    "tokens": 900,
    "details": 200,
    "details_left": 200,
    "facts": 100,
    "facts_left": 90,
    "originals": 100,
    "originals_left": 100,
    "originals_whole": 80,
    "duplicates": 20,
    "duplicates_gone": 19,
    "lookalikes": 10,
    "lookalikes_merged": 1,
    "changes": 200,
    "refused": 150,
    "merges": 100,
    "merges_refused": 1,
    "sessions": 20,
    "failed": 0,
    "rolled_back": 0,
}
GOOD = Week(model="terse", week=2, lowest_month=0.5, **COUNTED)


@pytest.mark.parametrize(
    ("is_hostile", "figures", "broken"),
    [
        (True, {}, []),
        (False, {}, []),
        (True, {"details_left": 199}, ["1 of 200 details lost"]),
        (False, {"details_left": 199}, ["1 of 200 details lost"]),
        (True, {"originals_left": 95}, []),
        (True, {"originals_left": 94}, ["94.0% of originals left"]),
        (True, {"lowest_month": 0.49}, ["an agent kept 49% of its tokens over 30 days"]),
        (False, {"failed": 1}, ["1 sessions failed"]),
        (False, {"originals_left": 99}, ["1 of 100 originals lost"]),
        (False, {"duplicates_gone": 18}, ["18 of 20 duplicates removed"]),
        (False, {"merges_refused": 2}, ["2 of 100 merges refused"]),
    ],
)
def test_each_broken_promise_is_named(
    is_hostile: bool, figures: dict[str, Any], broken: list[str]
) -> None:
    assert broken_promises([GOOD, replace(GOOD, **figures)], is_hostile=is_hostile) == broken
