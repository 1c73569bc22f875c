"""A process that crashes leaves no copy of its memory behind."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask
from redis import Redis

from tests.browser.serving import free_port
from tests.commands import children_of, environment, eventually
from tests.in_redis import is_ready

ROOT = Path(__file__).parent.parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

# A shell raises the limit: after a fork of this process, which has threads, Python may hang.
_ALLOWED = 'ulimit -S -c "$(ulimit -H -c)";'

Start = Callable[[str], int]


def command_of(name: str) -> str:
    """What the Procfile says."""
    lines = (ROOT / "Procfile").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)[name]


@pytest.fixture
def start(environ: dict[str, str], app: Flask, redis: Redis) -> Iterator[Start]:
    """Start a command of the Procfile, allowed to dump core."""
    started: list[subprocess.Popen[bytes]] = []
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {**environ, "PATH": path, "PORT": str(free_port()), "HOST": "127.0.0.1"}

    def start(name: str) -> int:
        started.append(
            subprocess.Popen(
                f"{_ALLOWED} exec {command_of(name)}",
                shell=True,
                cwd=ROOT,
                env=own,
                stderr=subprocess.DEVNULL,
            )
        )
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def limits_of(pid: int) -> list[str]:
    """The soft and the hard limit of core dumps."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line.split()[4:6] for line in lines if line.startswith("Max core"))


@pytest.mark.parametrize("name", ["worker", "clock"])
def test_workers_and_clock_may_not_dump_core(start: Start, redis: Redis, name: str) -> None:
    pid = start(name)
    eventually(lambda: is_ready(redis))

    assert limits_of(pid) == ["0", "0"]


def test_neither_gunicorn_nor_its_workers_may_dump_core(start: Start) -> None:
    pid = start("web")
    eventually(lambda: len(children_of(pid)) == 2)

    for each in (pid, *children_of(pid)):
        assert limits_of(each) == ["0", "0"]


@pytest.mark.parametrize(
    "loads",
    [
        "from refine.cli import main; main(['keys', 'new'])",
        "import app",
        "from gunicorn.app.wsgiapp import WSGIApplication as App; App('').load_config_from_file("
        "'gunicorn.conf.py')",
    ],
    ids=["refine", "app", "gunicorn"],
)
def test_a_process_and_its_children_are_not_dumpable(environ: dict[str, str], loads: str) -> None:
    ask = "__import__('ctypes').CDLL(None).prctl(3, 0, 0, 0, 0)"  # PR_GET_DUMPABLE
    code = (
        "import os, sys\ntry: " + loads + "\nexcept SystemExit: pass\n"
        f"if os.fork() == 0: os._exit({ask})\n"
        f"sys.exit(1 if {ask} or os.wait()[1] else 77)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(environ), capture_output=True
    )

    assert done.returncode == 77, done.stderr.decode()
