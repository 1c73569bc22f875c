"""A short storm over real processes, and a long one: three minutes, or ``MINUTES`` of ``SEED``."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.chaos.run import Options, run
from tests.chaos.storm import Fault, plan

# What a session survives: those of a worker that is killed would be ended by the clock, one or two
# minutes later.
FAULTS = (
    Fault(3.0, "stop fast", "postgres", 2.0),
    Fault(6.0, "terminate", "worker-2"),
    Fault(7.0, "slow", "model", 2.0),
    Fault(8.0, "kill", "valkey", 1.0),
    Fault(10.0, "flush", "valkey"),
)
SHORT = Options(12.0, 1, 8, FAULTS, names=("worker-1", "worker-2", "clock", "web"))

_SECONDS, _SEED = 60 * float(os.environ.get("MINUTES", "3")), int(os.environ.get("SEED", "7"))
LONG = Options(_SECONDS, _SEED, 30, plan(_SEED, _SECONDS))


@pytest.mark.parametrize("options", [SHORT, pytest.param(LONG, marks=pytest.mark.nightly)])
def test_a_storm_over_real_processes_loses_nothing_and_does_nothing_twice(
    options: Options,
) -> None:
    # short, because sockets stand in it
    with TemporaryDirectory(prefix="refine-chaos-") as folder:
        outcome = run(options, Path(folder))
        if outcome.breaches:  # the log tells why a request failed
            print((Path(folder) / "logs" / "web.log").read_text(errors="replace"))

    assert outcome.breaches == []
    assert outcome.figures["sessions"] >= options.agents
    assert outcome.figures["promises"] > 0
    assert outcome.figures["stop fast"] >= 1
