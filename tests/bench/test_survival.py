"""The short form of `refine bench survival`: no model breaks a promise."""

import pytest

from bench.simulated_models import SIMULATED_MODELS
from bench.survival import Scale, broken_promises, simulate
from refine.settings import Settings

HOSTILE = [name for name, model in SIMULATED_MODELS.items() if model.is_hostile]


def test_the_careful_model_keeps_all_promises(played: Settings) -> None:
    weeks = list(simulate("careful", Scale(agents=2, weeks=5, memories=16), played))

    assert broken_promises(weeks, is_hostile=False) == []


# each with memories in another language
@pytest.mark.parametrize(("seed", "model"), [*enumerate(HOSTILE)], ids=HOSTILE)
def test_no_hostile_model_loses_what_must_stay(played: Settings, seed: int, model: str) -> None:
    weeks = list(simulate(model, Scale(agents=1, weeks=3, memories=12, seed=seed), played))

    assert weeks[-1].changes > 0
    assert broken_promises(weeks, is_hostile=True) == []
