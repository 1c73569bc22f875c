"""Which tests cost too much for the quick run: `make costly` measures, and writes costly.txt.

A test costs the CPU time of its process and of those that it started; what PostgreSQL takes is left
out. The list is data, so that a test that has become cheap is quick again without an edit of it.
"""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

LIST = Path(__file__).parent / "costly.txt"
# Of one test; and of all cases of one test together.
_MOST_SECONDS, _MOST_SECONDS_TOGETHER = 0.2, 1.5


class Meter:
    """A plugin that adds up what the tests of each function cost."""

    def __init__(self) -> None:
        self.costs: dict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = _spent()
        try:
            return (yield)
        finally:
            self.costs[function_of(item)].append(_spent() - before)

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


def _spent() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def main() -> int:
    """Run all tests of the gate but the proofs, one after the other."""
    meter = Meter()
    options = ["-n", "0", "-m", "not no_cover", "--hypothesis-profile=quick", *sys.argv[1:]]
    code = pytest.main([*options, "-p", "no:cacheprovider"], plugins=[meter])
    LIST.write_text("".join(f"{name}\n" for name in meter.costly()), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
