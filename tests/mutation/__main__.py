"""Put faults into the code one by one, and list those that no test notices: `make mutants`.

First every test of the gate is run once, to learn which lines it reaches (kept in build/mutants/,
until ``--fresh``); then each mutant is run against those that reach its line, the likeliest first.
"""

import argparse
import random
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from coverage import CoverageData

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.runner import MutantRunner

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "mutants"
TARGETS = (
    *("refine/rules", "refine/sealing.py", "refine/models", "refine/running", "refine/refinement"),
    *("refine/remembering", "refine/access", "refine/tools"),
)
CHOSEN_TESTS = ("-m", "not nightly", "--hypothesis-profile=quick", "-p", "no:cacheprovider")


def main() -> int:
    """Run what the command line asks for; return 1 if fewer than 90 % were killed."""
    options = _options()
    BUILD.mkdir(parents=True, exist_ok=True)
    if options.fresh or not (BUILD / "coverage").exists():
        _learn_reach()
    data = CoverageData(basename=str(BUILD / "coverage"))
    data.read()
    plan = [(mutant, _tests_of(mutant, data)) for mutant in _chosen(options)]
    runner = MutantRunner(plan)
    # a fork leaves its parent's connections open, which is no fault of a test
    forked = ("-q", "--no-cov", "-n", "0", "-p", "no:unraisableexception")
    if pytest.main([*forked, *CHOSEN_TESTS, "tests"], plugins=[runner]) not in (0, 5):
        return 2
    return _report(runner.outcomes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("targets", nargs="*", help="files or folders; default: the core")
    parser.add_argument("--sample", type=int, help="try that many, chosen at random")
    parser.add_argument("--seed", type=int, default=1, help="of the random choice")
    parser.add_argument("--fresh", action="store_true", help="learn again what tests reach")
    return parser.parse_args()


def _learn_reach() -> None:
    """Run the tests of the gate, with a context of coverage each."""
    measuring = ("--cov=refine", "--cov-context=test", "--cov-report=")
    command = (sys.executable, "-m", "pytest", "-q", "-n", "auto", *CHOSEN_TESTS, *measuring)
    subprocess.run([*command, "tests"], cwd=ROOT, check=False)  # noqa: S603
    (ROOT / ".coverage").rename(BUILD / "coverage")


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    every: list[Mutant] = []
    for target in options.targets or TARGETS:
        path = ROOT / target
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            every += mutants_of(file, str(file.relative_to(ROOT)))
    if options.sample is not None and options.sample < len(every):
        every = random.Random(options.seed).sample(every, options.sample)  # noqa: S311
    return every


def _tests_of(mutant: Mutant, data: CoverageData) -> list[str]:
    """Return the tests that reach the mutant; first those in a place like its own."""
    lines = _lines(data, mutant.path)
    reaching = (lines.get(line, ()) for line in range(mutant.line, mutant.last_line + 1))
    tests = {context.partition("|")[0] for contexts in reaching for context in contexts if context}
    parts = Path(mutant.path).with_suffix("").parts[1:]
    names = mutant.function.split(".")

    def likeness(test: str) -> int:
        text = _text(test.partition("::")[0])
        return 2 * sum(part in test for part in parts) + sum(name in text for name in names)

    return sorted(tests, key=lambda test: (-likeness(test), test))


@cache
def _lines(data: CoverageData, path: str) -> dict[int, list[str]]:
    """Return the tests that reach each line of a file."""
    return data.contexts_by_lineno(str(ROOT / path))


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def _report(outcomes: list[tuple[str, str, int]]) -> int:
    counts = Counter(outcome for _, outcome, _ in outcomes)
    for name, outcome, tests in sorted(outcomes):
        if outcome != "killed":
            print(f"{outcome} ({tests} tests): {name}")
    tried = len(outcomes) - counts["not applied"]
    share = counts["killed"] / tried if tried else 1.0
    print(f"{counts['killed']} of {tried} mutants killed ({share:.1%}); {dict(counts)}")
    return 0 if share >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
