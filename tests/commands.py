"""The command `refine` in a process of its own, as a person or an init system runs it.

Most are forked from the tests' process: what loading takes, a second and a half, is most of what a
short command costs.
"""

import gc
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest
from coverage import Coverage

from refine.cli import main

REFINE = str(Path(sys.executable).parent / "refine")
UNUSED_PORT = 1


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment of its own."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **variables}


def refine_here(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    environ: Mapping[str, str],
    *arguments: str | bytes,
    stdin: str | bytes = "",
) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process, as its entry point does."""
    with monkeypatch.context() as patch:
        own = environment(environ)
        for name in set(os.environ) - set(own):
            patch.delenv(name)
        for name, value in own.items():
            patch.setenv(name, value)
        given = stdin.encode() if isinstance(stdin, str) else stdin
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="utf-8"))
        with pytest.raises(SystemExit) as ending:
            main([os.fsdecode(argument) for argument in arguments])
    said = capsys.readouterr()
    code = ending.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, said.out, said.err)


def start(
    *arguments: str,
    environ: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[str] = subprocess.PIPE,
) -> "subprocess.Popen[str]":
    """Start a command and leave it running, in a process group of its own."""
    return subprocess.Popen(
        [REFINE, *arguments],
        env=environment(environ),
        cwd="/",
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def eventually(true: Callable[[], object], *, seconds: float = 60) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that still live."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


# -- forked ---------------------------------------------------------------------------------------


class Service:
    """A command that runs beside the test; its output is in files."""

    def __init__(
        self,
        arguments: Sequence[str | bytes],
        environ: Mapping[str, str],
        said: Path,
        errors: Path | None = None,
        stdin: str | Path = os.devnull,
    ) -> None:
        self.code: int | None = None
        self._said = said
        self.pid = os.fork()
        if self.pid == 0:
            appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            outputs = (os.open(each, appending, 0o600) for each in (said, errors or said))
            _run(arguments, environment(environ), (os.open(stdin, os.O_RDONLY), *outputs))

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self._said.read_text() if self._said.exists() else ""

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The lines of its log for this event."""
        logged = [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]
        return [line for line in logged if line["event"] == event]

    def is_running(self) -> bool:
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if ended else None
        return self.code is None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 20) -> int:
        """Its exit code, negative for the signal that killed it."""
        eventually(lambda: not self.is_running(), seconds=seconds)
        assert self.code is not None
        return self.code

    def kill(self) -> None:
        if self.is_running():
            self.signal(signal.SIGKILL)
            self.wait()


def refine(
    *arguments: str | bytes,
    environ: Mapping[str, str],
    stdin: str | bytes = "",
    seconds: float = 60,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, forked from this process."""
    with tempfile.TemporaryDirectory() as folder:
        given, said, errors = (Path(folder) / name for name in ("given", "said", "errors"))
        given.write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        forked = Service(arguments, environ, said, errors, given)
        try:
            code = forked.wait(seconds)
        finally:
            forked.kill()
        return subprocess.CompletedProcess(arguments, code, forked.said, errors.read_text())


def _run(arguments: Sequence[str | bytes], own: dict[str, str], streams: Sequence[int]) -> NoReturn:
    """Become the command: nothing of the tests' process is seen, or run at the end."""
    code = 70
    try:
        gc.freeze()  # what the tests hold is not this process's to collect
        if (measuring := Coverage.current()) is not None:
            measuring.stop()  # nor what they run, to count
        os.setsid()
        os.chdir("/")
        for number, given in enumerate(streams):
            os.dup2(given, number)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, buffering=1, closefd=False)
            for number, mode in enumerate(("r", "w", "w"))
        )
        os.environ.clear()
        os.environ.update(own)
        main([os.fsdecode(argument) for argument in arguments])
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


@contextmanager
def services(environ: dict[str, str], folder: Path) -> Iterator[Callable[..., Service]]:
    """Starts commands; kills those that the test does not end."""
    started: list[Service] = []

    def begin(*arguments: str, **variables: str) -> Service:
        said = folder / f"said-{len(started)}"
        started.append(Service(arguments, {**environ, **variables}, said))
        return started[-1]

    try:
        yield begin
    finally:
        for service in started:
            service.kill()


# -- refine up ------------------------------------------------------------------------------------


class Up:
    """A running `refine up`; ``said``: the output of it and its processes."""

    def __init__(self, folder: Path, **variables: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.environ = {"REFINE_DATA_DIR": str(folder), "PORT": str(self.port), **variables}
        self.process = start("up", environ=self.environ)
        self.said: list[str] = []
        streams = (self.process.stdout, self.process.stderr)
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams
        ]
        for reader in self._readers:
            reader.start()

    @property
    def url(self) -> str:
        """The URL of its dashboard."""
        return f"http://127.0.0.1:{self.port}"

    def ready(self) -> str:
        """The line about its readiness."""
        eventually(lambda: any(" is ready" in line for line in self.said), seconds=60)
        return next(line for line in self.said if " is ready" in line)

    def end(self) -> int:
        """Its exit code, after it was asked to stop."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        for reader in self._readers:
            reader.join(timeout=10)
        return code

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.end()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read(self, stream: IO[str]) -> None:
        self.said.extend(iter(stream.readline, ""))


@contextmanager
def running_up() -> Iterator[Up]:
    """`refine up` in a folder of a short path: PostgreSQL's socket has little room for it."""
    with tempfile.TemporaryDirectory(prefix="refine-up-") as folder:
        running = Up(Path(folder))
        try:
            yield running
        finally:
            running.close()
