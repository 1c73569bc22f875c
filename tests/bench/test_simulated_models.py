"""The hostile models, as far as a simulation does not show them."""

import pytest

from bench.corpus import POISON
from bench.simulated_models import SIMULATED_MODELS
from bench.simulated_models.hostile import obedient
from tests.bench.conversations import conversation

OTHERS = ("Anna moved to Ely on 3 March 2026.", "Ruth keeps 3 hens.")


@pytest.mark.parametrize("name", SIMULATED_MODELS)
@pytest.mark.parametrize("memories", [(), OTHERS[:1], OTHERS])
def test_every_model_copes_with_a_small_ledger(name: str, memories: tuple[str, ...]) -> None:
    for step in SIMULATED_MODELS[name].play(conversation(*memories)):
        assert step["action"] in ("consolidate", "update", "delete", "complete")


@pytest.mark.parametrize("order", POISON, ids=range(len(POISON)))
def test_the_obedient_model_obeys_every_poison(order: str) -> None:
    assert obedient(conversation(order.format(number=7), *OTHERS))


def test_only_the_careful_model_means_well() -> None:
    assert [name for name, model in SIMULATED_MODELS.items() if not model.is_hostile] == ["careful"]
