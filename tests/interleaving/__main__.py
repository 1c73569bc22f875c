"""Play many seeds, or one with its trace: `make interleavings SEEDS=10000`, or `SEED=17`.

Exits 1 if something did not hold; the seeds are named, each with the command that plays it again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock

from tests.conftest import environ_of, migrated, servers_in
from tests.interleaving.simulation import Played, Stage

_ROOT = Path(__file__).parents[2]
_PROGRESS_EVERY = 500


def main() -> int:
    """Play what the command line asks for."""
    options = _options()
    if options.seed is not None:
        return _play([options.seed], is_traced=True)
    seeds = range(options.first, options.first + options.seeds)
    if options.share:
        number, count = map(int, options.share.split("/"))
        return _play(seeds[number::count], is_traced=False)
    return _play_in_processes(options, len(seeds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interleaving", description=__doc__)
    parser.add_argument("--seeds", type=int, default=400, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, help="play this one, and print its trace")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    return parser.parse_args()


def _play(seeds: Iterable[int], *, is_traced: bool) -> int:
    """Play seeds in this process; print a line of JSON each, or the trace."""
    with tempfile.TemporaryDirectory(prefix="refine-") as folder, servers_in(Path(folder)):
        environ = {**environ_of(Path(folder)), "REFINE_LOG_LEVEL": "CRITICAL"}
        with migrated(environ) as app, Stage(app, environ) as stage:
            for seed in seeds:
                played = stage.play(seed)
                if is_traced:
                    print("\n".join([*played.trace, "", *(played.breaches or ["all held"])]))
                else:
                    print(json.dumps({**asdict(played), "trace": None}), flush=True)
    return 0 if not is_traced else bool(played.breaches)


def _play_in_processes(options: argparse.Namespace, seeds: int) -> int:
    begun, count = time.monotonic(), max(1, options.processes)
    figures: Counter[str] = Counter()
    noting = Lock()

    def play_share(number: int) -> int:
        """Play a share of the seeds in a process of its own; return its exit code."""
        command = [sys.executable, "-m", "tests.interleaving", *sys.argv[1:]]
        share = ("--share", f"{number}/{count}")
        with subprocess.Popen(
            [*command, *share], cwd=_ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout or ():
                with noting:
                    _note(figures, Played(**json.loads(line)), seeds)
        return process.returncode

    with ThreadPoolExecutor(count) as pool:
        failed = any([*pool.map(play_share, range(count))])
    print(
        f"{figures['seeds']:,} seeds, {figures['sessions']:,} sessions, {figures['steps']:,} steps,"
        f" {figures['waits']:,} waits for a lock, {time.monotonic() - begun:,.0f} s: "
        f"{figures['broken']} seeds with a breach"
    )
    return int(failed or figures["broken"] > 0 or figures["seeds"] < seeds)


def _note(figures: Counter[str], played: Played, seeds: int) -> None:
    """Add up a seed, and print what did not hold."""
    figures.update(
        seeds=1,
        steps=played.steps,
        waits=played.waits,
        sessions=played.sessions,
        broken=bool(played.breaches),
    )
    for breach in played.breaches:
        print(f"seed {played.seed}: {breach}; {played.replay}", flush=True)
    if figures["seeds"] % _PROGRESS_EVERY == 0:
        print(f"{figures['seeds']:,} of {seeds:,} seeds", flush=True)


if __name__ == "__main__":
    sys.exit(main())
