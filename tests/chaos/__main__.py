"""Lets a storm pass over real processes, and says what it broke: ``make chaos MINUTES=10``.

Ends with 1 if something was lost or done twice. The faults follow from the seed; which request they
meet does not, so the same seed makes the same storm, and not the same run.
"""

import argparse
import pickle
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.checker import breaches
from tests.chaos.run import Options, Outcome, run

_SEEDS = 1_000_000


def main(arguments: list[str]) -> int:
    """Run a storm; return 1 after a breach."""
    given = _parsed(arguments)
    options = Options(given.minutes * 60, given.seed, given.agents, given.apart)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended, too
    folder = Path(tempfile.mkdtemp(prefix="refine-chaos-"))
    _say(f"seed {options.seed}, {given.minutes:g} min; logs in {folder / 'logs'}")
    outcome = run(options, folder, _say)
    is_clean = _report(options, outcome)
    if is_clean:
        shutil.rmtree(folder)
    else:
        (folder / "history.pickle").write_bytes(pickle.dumps(outcome.history))
    return 0 if is_clean else 1


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(_SEEDS))
    parser.add_argument("--agents", type=int, default=40)
    parser.add_argument("--apart", type=float, default=60, help="seconds between the clocks")
    return parser.parse_args(arguments)


def _report(options: Options, outcome: Outcome) -> bool:
    for trouble in outcome.history.troubles:
        if trouble.last_words:
            _say(f"{trouble.target} ended by itself: {trouble.last_words[:200]}")
    found = breaches(outcome.history)
    for breach in found:
        _say(f"BREACH {breach}")
    figures = ", ".join(f"{count:,} {name}" for name, count in outcome.figures.items())
    _say(
        f"chaos: seed {options.seed}, {options.seconds / 60:g} min: "
        f"{figures}, {len(found)} breaches"
    )
    return not found


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
