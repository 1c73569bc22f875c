"""`refine up`: everything started with one command, and everything gone after it."""

import re
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.commands import eventually, refine, start
from tests.embedded.processes import processes_of


class Up:
    """A running `refine up` in a data folder of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.environ = {"REFINE_DATA_DIR": str(folder), "PORT": str(self.port)}
        self.process = start("up", environ=self.environ)
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ready(self) -> str:
        eventually(lambda: any("ready" in line for line in self.said), seconds=60)
        return next(line for line in self.said if "ready" in line)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self._reader.join(timeout=10)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.said.extend(iter(self.process.stdout.readline, ""))


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    # a short path: PostgreSQL's socket has little room for it
    with tempfile.TemporaryDirectory(prefix="refine-up-") as folder:
        running = Up(Path(folder))
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.end()
            for stream in (running.process.stdout, running.process.stderr):
                if stream is not None:
                    stream.close()


@pytest.mark.slow
def test_everything_is_started_used_and_ended_with_one_command(up: Up) -> None:
    line = up.ready()

    answer = requests.get(f"http://127.0.0.1:{up.port}/readyz", timeout=10)
    ran = refine("run", "Halyard", "--enqueue", environ=up.environ)
    listed = refine("agent", "list", "--account", "demo", environ=up.environ)
    again = refine("up", environ=up.environ)
    taken = refine("up", environ={**up.environ, "REFINE_DATA_DIR": f"{up.folder}/other"})
    code = up.end()

    assert re.search(
        rf"refine is ready: http://localhost:{up.port} "
        r"\(sign in as admin@localhost with the password \S{16}\)",
        line,
    )
    assert answer.json()["status"] == "ok"
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Halyard" in listed.stdout
    assert again.returncode == 1
    assert re.fullmatch(
        rf"refine: refine up already runs .* it answers at http://localhost:{up.port}\n",
        again.stderr,
    )
    assert taken.returncode == 1
    assert f"refine: port {up.port} cannot be used" in taken.stderr
    assert code == 0
    assert processes_of(up.folder) == []
