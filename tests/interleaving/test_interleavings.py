"""Whatever order the steps of sessions and everybody else come in, the guarantees hold."""

import os
from collections.abc import Iterator

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent
from tests.interleaving.simulation import Stage

_IN_THE_GATE = range(8)
_FIRST, _COUNT = int(os.environ.get("SEED", "100")), int(os.environ.get("SEEDS", "500"))
_NIGHTLY = [
    range(first, min(first + 100, _FIRST + _COUNT)) for first in range(_FIRST, _FIRST + _COUNT, 100)
]


@pytest.fixture(scope="module")
def stage(migrated_app: Flask, environ: dict[str, str]) -> Iterator[Stage]:
    with Stage(migrated_app, environ) as stage:
        yield stage


@pytest.mark.parametrize(
    "seeds", [_IN_THE_GATE, *(pytest.param(each, marks=pytest.mark.nightly) for each in _NIGHTLY)]
)
def test_no_order_of_steps_breaks_a_guarantee(stage: Stage, seeds: range) -> None:
    for seed in seeds:
        played = stage.play(seed)
        if played.breaches:
            print("\n".join(played.trace))
        assert not played.breaches, f"{played.breaches}; make long SEED={seed} SEEDS=1"


def test_a_seed_gives_the_same_steps_each_time(stage: Stage) -> None:
    assert stage.play(0).trace == stage.play(0).trace


def test_actors_wait_for_each_other_and_take_turns(stage: Stage) -> None:
    played = [stage.play(seed) for seed in range(3)]

    assert sum(each.waits for each in played) > 0
    assert sum(each.sessions for each in played) > 2


def test_a_lock_that_nobody_takes_is_noticed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation finds faults: here agents are reloaded, and not locked."""

    def only_reload(agent: Agent) -> None:
        db.session.flush()
        db.session.refresh(agent)

    monkeypatch.setattr(Agent, "lock", only_reload)

    assert any(stage.play(seed).breaches for seed in range(20))
