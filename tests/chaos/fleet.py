"""The processes that break: servers, workers, clock and web, each with a log of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from refine.embedded import postgres, redis_url, valkey
from tests.commands import environment
from tests.servers import Server

WORKERS = ("worker-1", "worker-2", "worker-3")
CLOCK, WEB, POSTGRES, VALKEY = "clock", "web", "postgres", "valkey"
PROCESSES = (*WORKERS, CLOCK, WEB)

_ROOT = Path(__file__).parents[2]
_ENDING_SECONDS = 60


class Fleet:
    """All processes by name; those in ``names`` are started again when they end."""

    def __init__(
        self, folder: Path, environ: Mapping[str, str], web_port: int, names: tuple[str, ...]
    ) -> None:
        self.folder, self.names = folder, names
        self.servers = {
            POSTGRES: Server(folder, postgres.running),
            VALKEY: Server(folder, valkey.running),
        }
        self.environ, self.web_port = environ, web_port
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "logs").mkdir()

    def start(self, name: str) -> None:
        """Start a process, or start it again; what follows a dot in its name is its release."""
        own = {"HOST": "127.0.0.1", "PORT": str(self.web_port)}
        kind = name.partition(".")[0]
        command = kind if kind in (WEB, CLOCK) else "worker"
        with self.log_of(name).open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "refine", command],
                cwd=_ROOT,
                env=environment({**self.environ, **own}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log_of(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def is_running(self, name: str) -> bool:
        """Whether the process lives, frozen or not."""
        return name in self._processes and self._processes[name].poll() is None

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the process, and to all that it forked."""
        with suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, number)

    def kill(self, name: str) -> None:
        self.send(name, signal.SIGKILL)
        self._processes[name].wait()

    def flush(self) -> None:
        """Empty Valkey, if it answers."""
        with suppress(RedisError), Redis.from_url(redis_url(self.folder), socket_timeout=2) as to:
            to.flushall()

    def end(self) -> None:
        """Wake and stop all processes, and kill what does not stop."""
        running = [name for name in self._processes if self.is_running(name)]
        for name in running:
            self.send(name, signal.SIGCONT)
            self.send(name, signal.SIGTERM)
        deadline = time.monotonic() + _ENDING_SECONDS
        for name in running:
            with suppress(subprocess.TimeoutExpired):
                self._processes[name].wait(max(0.1, deadline - time.monotonic()))
            if self.is_running(name):
                self.kill(name)


@contextmanager
def servers_of(fleet: Fleet) -> Iterator[None]:
    """Run the servers until the block ends, and end all that was started in it."""
    try:
        for server in fleet.servers.values():
            server.start()
        yield
    finally:
        fleet.end()
        for server in fleet.servers.values():
            server.stop()
