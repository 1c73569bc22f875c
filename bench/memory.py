"""The memory of processes: all of `refine up`, and a worker with many sessions."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from bench.measuring import Benchmark, Figure, Unexpected
from bench.playing import reply
from bench.temporary import temporary_folder
from bench.world import World, add_agent, texts
from refine import settings
from refine.cli.context import OF_INSTALLATION
from refine.extensions import db
from refine.jobs.queue import refine_later
from refine.llm import rehearsal
from refine.models import Agent, RefinementSession

AT_REST_AT_MOST_MB = 300
AT_ONCE_AT_MOST_MB = 250

_ROOT = Path(__file__).parent.parent
_READY_SECONDS = 60
# Until the first tick is over, and what it used is free again.
_SETTLED_SECONDS = 3
_MODEL_SECONDS = 2
_SAMPLE_SECONDS = 0.2


def benchmarks(world: World) -> list[Benchmark]:
    """Return both; only root may read how processes of others share memory."""
    return [
        Benchmark("sessions at once", lambda: _at_once(world)),
        Benchmark("at rest", _at_rest),
    ]


# -- at rest ---------------------------------------------------------------------------------------


def _at_rest() -> Iterator[Figure]:
    with _up() as pid:
        time.sleep(_SETTLED_SECONDS)
        taken = _megabytes(pid)
    name = "at rest: everything that `make up` starts"
    yield Figure(name, taken, at_most=AT_REST_AT_MOST_MB, unit="MB")


@contextmanager
def _up() -> Iterator[int]:
    with temporary_folder() as folder, socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
        probe.close()
        with _refine("up", REFINE_DATA_DIR=str(folder), PORT=str(port)) as process:
            _await_ready(process, f"http://127.0.0.1:{port}/readyz")
            yield process.pid


def _await_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if requests.get(url, timeout=2).ok:
                return
        except requests.RequestException:
            time.sleep(0.1)
    raise Unexpected("`refine up` did not start")


# -- sessions at once ------------------------------------------------------------------------------


def _at_once(world: World) -> Iterator[Figure]:
    """Queue sessions with a slow model; return the peak memory of their worker."""
    count = world.size.at_once
    account_id = db.session.get_one(Agent, world.large_id).account_id
    agent_ids = [
        add_agent(account_id, texts(world.size.ledgers[0]), model_id="trial/slow")
        for _ in range(count)
    ]
    for agent_id in agent_ids:
        refine_later(db.session.get_one(Agent, agent_id), "manual")
    with rehearsal.serving(_slow) as url:
        taken = _most_of_a_worker(count, url)
    states = RefinementSession.status.label("status")
    query = db.select(states).where(RefinementSession.agent_id.in_(agent_ids))
    if set(db.session.scalars(query)) != {"completed"}:
        raise Unexpected("not every session was completed")
    name = f"{count} sessions at once, ledgers of {world.size.ledgers[0]:,}"
    yield Figure(name, taken, at_most=AT_ONCE_AT_MOST_MB, unit="MB")


def _slow(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as a model that consents, and then completes at once."""
    time.sleep(_MODEL_SECONDS)
    return reply(body, lambda _: [])


def _most_of_a_worker(count: int, url: str) -> float:
    variables = {
        "REFINE_DATA_DIR": str(settings.current().data_dir),
        "REFINE_CONCURRENCY": str(count),
        "OPENROUTER_BASE_URL": url,
        "OPENROUTER_API_KEY": "bench",
    }
    most, is_over = [0.0], threading.Event()
    with _refine("worker", "--burst", **variables) as process:

        def sample() -> None:
            while not is_over.wait(_SAMPLE_SECONDS):
                most[0] = max(most[0], _megabytes(process.pid))

        sampling = threading.Thread(target=sample)
        sampling.start()
        process.wait()
        is_over.set()
        sampling.join()
    return most[0]


# -- processes -------------------------------------------------------------------------------------


@contextmanager
def _refine(*arguments: str, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    kept = {name: text for name, text in os.environ.items() if name not in OF_INSTALLATION}
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "refine", *arguments],
        cwd=_ROOT,
        env={**kept, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _megabytes(pid: int) -> float:
    """Return the memory of a process and its descendants, with their part of shared pages."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return 0.0
    own = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return own + sum(_megabytes(int(child)) for child in children)
