"""Let a storm pass over real processes, and say what it broke: ``make chaos MINUTES=10 SEED=7``.

Ends with 1 if something was lost or done twice. The faults follow from the seed; which request they
meet does not.
"""

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Options, run
from tests.chaos.storm import plan


def main(arguments: list[str]) -> int:
    """Run a storm; return 1 after a breach."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--agents", type=int, default=40)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended, too
    folder = Path(tempfile.mkdtemp(prefix="refine-chaos-"))
    print(f"seed {given.seed}, {given.minutes:g} min; logs in {folder / 'logs'}", flush=True)
    seconds = given.minutes * 60
    outcome = run(Options(seconds, given.seed, given.agents, plan(given.seed, seconds)), folder)
    for breach in outcome.breaches:
        print(f"BREACH {breach}")
    figures = ", ".join(f"{count:,} {name}" for name, count in outcome.figures.items())
    print(f"chaos: seed {given.seed}, {figures}, {len(outcome.breaches)} breaches")
    if outcome.breaches:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
