"""The hostile keepers, as far as a simulation does not show them."""

import pytest

from refine.trials.keepers import KEEPERS
from refine.trials.keepers.obeying import obedient
from refine.trials.poison import POISON
from tests.trials.conversations import conversation

OTHERS = ("Anna moved to Ely on 3 March 2026.", "Ruth keeps 3 hens.")


@pytest.mark.parametrize("name", KEEPERS)
@pytest.mark.parametrize("memories", [(), OTHERS[:1], OTHERS])
def test_every_keeper_copes_with_a_small_ledger(name: str, memories: tuple[str, ...]) -> None:
    for step in KEEPERS[name].play(conversation(*memories)):
        assert step["action"] in ("consolidate", "update", "delete", "complete")


@pytest.mark.parametrize("order", POISON, ids=range(len(POISON)))
def test_the_obedient_keeper_obeys_every_poison(order: str) -> None:
    assert obedient(conversation(order.format(number=7), *OTHERS))


def test_only_the_careful_keeper_means_well() -> None:
    assert [name for name, keeper in KEEPERS.items() if not keeper.is_hostile] == ["careful"]
