"""A short storm over real processes; ``make chaos`` lets a long one pass."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.chaos.checker import breaches
from tests.chaos.plan import Fault
from tests.chaos.run import Options, run

pytestmark = pytest.mark.slow

# What a session survives, or what ends it at once: those of a worker that is killed would be
# ended by the clock, one or two minutes later.
FAULTS = (
    Fault(2.0, "kill child of", "worker-1"),
    Fault(3.0, "stop fast", "postgres", 2.0),
    Fault(6.0, "terminate", "worker-2", 0.5),
    Fault(7.0, "slow", "model", 2.0),
    Fault(8.0, "kill", "valkey", 1.0),
    Fault(10.0, "flush", "valkey"),
)
FEW = ("worker-1", "worker-2", "clock-1", "web")


def test_a_storm_over_real_processes_loses_nothing_and_does_nothing_twice() -> None:
    # short, because sockets stand in it
    with TemporaryDirectory(prefix="refine-chaos-") as folder:
        options = Options(12.0, seed=1, agents=8, faults=FAULTS, names=FEW)
        outcome = run(options, Path(folder), print)
        found = [str(each) for each in breaches(outcome.history)]
        if found:  # the log tells why a request failed
            print((Path(folder) / "logs" / "web.log").read_text(errors="replace"))

    assert found == []
    assert outcome.figures["sessions"] >= 8
    assert outcome.figures["promises"] > 0
    assert outcome.figures["seconds between the clocks"] >= options.apart / 2
    assert outcome.figures["stops of PostgreSQL"] == 1
