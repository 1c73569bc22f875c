"""How much memory everything takes that `refine up` starts, while there is nothing to do."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from bench.measuring import Benchmark, Figure
from bench.temporary import temporary_folder
from refine.cli.context import OF_INSTALLATION

AT_MOST_MB = 300

_ROOT = Path(__file__).parent.parent
_READY_SECONDS = 60
# Until the first tick is over, and what it used is free again.
_SETTLED_SECONDS = 3


class NotReady(Exception):
    """`refine up` did not start."""


def benchmarks() -> list[Benchmark]:
    """Return that of the memory; only root may read how processes share it."""
    return [Benchmark("at rest", _at_rest)]


def _at_rest() -> Iterator[Figure]:
    with _up() as pid:
        time.sleep(_SETTLED_SECONDS)
        taken = sum(_proportional_mb(each) for each in _with_descendants(pid))
    yield Figure("at rest: everything that `make up` starts", taken, at_most=AT_MOST_MB, unit="MB")


@contextmanager
def _up() -> Iterator[int]:
    with temporary_folder() as folder, socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()
        kept = {name: text for name, text in os.environ.items() if name not in OF_INSTALLATION}
        process = subprocess.Popen(
            [sys.executable, "-m", "refine", "up"],
            cwd=_ROOT,
            env={**kept, "REFINE_DATA_DIR": str(folder), "PORT": str(port)},
            stdout=subprocess.DEVNULL,
        )
        try:
            _await_ready(process, f"http://127.0.0.1:{port}/readyz")
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if requests.get(url, timeout=2).ok:
                return
        except requests.RequestException:
            time.sleep(0.1)
    raise NotReady(url)


def _with_descendants(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _with_descendants(int(child))


def _proportional_mb(pid: int) -> float:
    """What a process takes; of pages that it shares with others, its part of them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1024
