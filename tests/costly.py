"""What tests cost: `make costly` writes costly.txt, the tests that are too much for the quick run.

A test costs the CPU time of its process and of those that it started; what PostgreSQL takes is left
out. The list is data, so that a test that has become cheap is quick again without an edit of it.
Every run notes what its quick tests cost together, for `make budget`: in seconds of a machine that
counts as fast as ``_COUNT_SECONDS`` says, since machines differ by a factor of two and more.
"""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).parent / "costly.txt"
SPENT = Path(__file__).parents[1] / "build" / "cpu-seconds-of-quick-tests"
# Of one test; and of all cases of one test together.
_MOST_SECONDS, _MOST_SECONDS_TOGETHER = 0.2, 1.5


# What counting costs, which is measured again before every so many tests.
_COUNTED, _COUNT_SECONDS, _COUNT_EVERY = 200_000, 0.0077, 25


class Meter:
    """A plugin that adds up what the tests of each function cost, and all quick ones."""

    def __init__(self) -> None:
        self.costs: dict[str, list[float]] = defaultdict(list)
        self.quick = 0.0
        self._counts: list[float] = []
        self._tests = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        if self._tests % _COUNT_EVERY == 0:
            self._counts.append(_count())
        self._tests += 1
        before = _spent()
        try:
            return (yield)
        finally:
            # the last test ends the servers, and would be charged with all that they spent
            cost = _spent() - before if nextitem else 0.0
            self.costs[function_of(item)].append(cost)
            self.quick += cost if item.get_closest_marker("slow") is None else 0.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """One of several processes has finished."""
        self.quick += getattr(node, "workeroutput", {}).get("quick", 0.0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._counts:
            self.quick *= _COUNT_SECONDS / (sum(self._counts) / len(self._counts))
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["quick"] = self.quick
        elif self.quick and session.config.args_source == pytest.Config.ArgsSource.TESTPATHS:
            SPENT.parent.mkdir(exist_ok=True)
            SPENT.write_text(f"{self.quick:.0f}\n", encoding="utf-8")

    def costly(self) -> list[str]:
        return sorted(
            function
            for function, costs in self.costs.items()
            if sum(costs) > _MOST_SECONDS_TOGETHER or sum(costs) / len(costs) > _MOST_SECONDS
        )


def function_of(item: pytest.Item) -> str:
    """The test without its case."""
    return item.nodeid.partition("[")[0]


def costly_tests() -> frozenset[str]:
    return frozenset(LIST.read_text(encoding="utf-8").split())


def _count() -> float:
    """Return the CPU seconds that plain counting takes here and now."""
    before = time.process_time()
    for _ in range(_COUNTED):
        pass
    return time.process_time() - before


def _spent() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def main() -> int:
    """Run all tests of the gate but the proofs, one after the other."""
    meter = Meter()
    options = ["-n", "0", "-m", "not proof", "--hypothesis-profile=quick", *sys.argv[1:]]
    code = pytest.main([*options, "-p", "no:cacheprovider"], plugins=[meter])
    LIST.write_text("".join(f"{name}\n" for name in meter.costly()), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
