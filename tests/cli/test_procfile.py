"""The Procfile as it is, under the programs that run one."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.commands import environment, eventually
from tests.embedded.processes import processes_of

ROOT = Path(__file__).parents[2]

RUNNERS = {
    "honcho": [sys.executable, "-m", "honcho", "start"],
    "foreman": ["foreman", "start"],  # Debian's package ruby-foreman
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "runner",
    [
        "honcho",
        pytest.param(
            "foreman",
            marks=[
                pytest.mark.nightly,
                pytest.mark.skipif(shutil.which("foreman") is None, reason="not installed here"),
            ],
        ),
    ],
)
def test_everything_starts_stays_and_stops(runner, fresh, redis, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {**fresh, "PATH": path, "PORT": str(port), "TESTED_IN": str(tmp_path)}

    def readiness() -> str:
        try:
            answer = requests.get(f"http://127.0.0.1:{port}/readyz", timeout=5)
        except requests.ConnectionError:
            return "nothing answers"
        return str(answer.json()["status"])

    with (tmp_path / "said").open("w") as said:
        running = subprocess.Popen(
            RUNNERS[runner], cwd=ROOT, env=environment(own), stdout=said, stderr=said
        )
    try:
        eventually(lambda: readiness() == "ok")
        alive = running.poll() is None
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(60)

    assert alive, (tmp_path / "said").read_text()
    assert processes_of(tmp_path) == []
