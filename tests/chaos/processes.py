"""The processes that break: servers, workers, clocks and web, each with a log of its own.

Everything here is called from one thread, the main one: a child gets its parent-death signal when
the thread that started it ends. Nothing outlives the block ``running``, nor a kill of this process.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from refine.embedded import postgres, redis_url, valkey
from refine.embedded.processes import dies_with_parent
from tests.chaos.plan import CLOCKS, MODEL, POSTGRES, VALKEY, WEB, WORKERS

_ROOT = Path(__file__).parents[2]
_SERVERS = {POSTGRES: postgres.running, VALKEY: valkey.running}
_ENDING_SECONDS = 60
_POLL_SECONDS = 0.5
_KILL = signal.SIGKILL


class Server:
    """PostgreSQL or Valkey, which may be stopped and started again on the same data."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._folder = name, folder
        self._open = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._open.enter_context(_SERVERS[self._name](self._folder))

    def stop(self, how: signal.Signals) -> None:
        """Stop it by a signal, and wait until it has ended."""
        if self._process is not None:
            self.send(signal.SIGCONT)
            self.send(how)
            self._process.wait(_ENDING_SECONDS)
            self._process = None
        self._open.close()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)


class Fleet:
    """All processes by name; ``ahead`` tells how many seconds each one's clock is off.

    ``names`` are those that are started again when they end.
    """

    def __init__(
        self, folder: Path, environ: Mapping[str, str], ports: tuple[int, int], seed: int
    ) -> None:
        self.folder, self.environ, self.names = folder, environ, ALL
        self.web_port, self.model_port = ports
        self.servers = {name: Server(name, folder) for name in _SERVERS}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ahead: dict[str, float] = {}
        self._seed = seed
        (folder / "logs").mkdir(parents=True, exist_ok=True)

    @property
    def model_log(self) -> Path:
        """What the model was asked, and what it answered."""
        return self.folder / "logs" / "model.jsonl"

    def log_of(self, name: str) -> Path:
        """The file of all that a process wrote."""
        return self.folder / "logs" / f"{name}.log"

    def last_words_of(self, name: str) -> str:
        """The last line that a process wrote."""
        lines = self.log_of(name).read_text(errors="replace").splitlines()
        return lines[-1] if lines else ""

    def start(self, name: str) -> None:
        """Start a process, or start it again."""
        with self.log_of(name).open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *self._command(name)],
                cwd=_ROOT,
                env={**os.environ, **self.environ, **self._own_variables(name)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=dies_with_parent(_KILL),
            )

    def _command(self, name: str) -> list[str]:
        if name == MODEL:
            return ["tests.chaos.model", str(self.model_port), str(self.model_log), str(self._seed)]
        kind = name.partition("-")[0]
        bound = ["--bind", f"127.0.0.1:{self.web_port}", *_GUNICORN] if name == WEB else []
        return ["tests.chaos.ahead", str(self.ahead.get(name, 0.0)), kind, *bound]

    def _own_variables(self, name: str) -> dict[str, str]:
        """By its address, the model knows which process asks."""
        url = f"http://127.0.0.1:{self.model_port}/{name}/v1"
        return {"PYTHONPATH": str(_ROOT), "OPENROUTER_BASE_URL": url, "PGAPPNAME": name}

    # -- signals ----------------------------------------------------------------------------------

    def is_running(self, name: str) -> bool:
        """Whether the process lives, frozen or not."""
        return name in self.processes and self.processes[name].poll() is None

    def send(self, name: str, number: signal.Signals, *, to_children: bool) -> None:
        """Send a signal to the process, and to all that it forked if so wished."""
        pid = self.processes[name].pid
        children = descendants(pid) if to_children else []
        for each in (pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)

    def kill(self, name: str) -> None:
        """Kill a process; its children end with it, or are killed as well (gunicorn's)."""
        self.send(name, _KILL, to_children=name == WEB)
        self.processes[name].wait()

    def kill_child(self, name: str) -> bool:
        """Kill a worker's child, in which its runs are; tell whether there is one."""
        children = descendants(self.processes[name].pid)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, _KILL)
        return bool(children)

    def flush(self) -> bool:
        """Empty Valkey; tell whether it answered."""
        with (
            contextlib.suppress(RedisError),
            Redis.from_url(
                redis_url(self.folder), socket_timeout=2, socket_connect_timeout=2
            ) as connection,
        ):
            return bool(connection.flushall())
        return False

    # -- the end ----------------------------------------------------------------------------------

    def end(self) -> None:
        """Wake and stop all processes in order, and kill what does not stop; then the servers."""
        for name in [name for name in self.processes if self.is_running(name)]:
            self.send(name, signal.SIGCONT, to_children=True)
            self.send(name, signal.SIGTERM, to_children=False)
        deadline = time.monotonic() + _ENDING_SECONDS
        for name, process in self.processes.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            if self.is_running(name):
                self.kill(name)


@contextlib.contextmanager
def running(fleet: Fleet) -> Iterator[Fleet]:
    """Run the servers until the block ends, and end all that was started in it."""
    try:
        for server in fleet.servers.values():
            server.start()
        yield fleet
    finally:
        fleet.end()
        for name, server in reversed(fleet.servers.items()):
            server.stop(signal.SIGINT if name == POSTGRES else signal.SIGTERM)


_GUNICORN = (
    *("--worker-class", "gthread", "--workers", "2", "--threads", "8", "--no-control-socket"),
    *("--access-logfile", os.devnull, "--log-level", "warning"),
)
ALL = (*WORKERS, *CLOCKS, WEB)


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below this one; none on systems without /proc."""
    parents = {int(each.name): _parent(each) for each in Path("/proc").glob("[0-9]*")}
    found, level = list[int](), {pid}
    while level := {child for child, parent in parents.items() if parent in level}:
        found += level
    return found


def _parent(process: Path) -> int | None:
    with contextlib.suppress(OSError):
        # the name, in parentheses, may hold anything; the state and the parent follow it
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return None


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait for it, at most so long; tell whether it came."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
