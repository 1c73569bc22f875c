"""Commands of Refine as processes of their own, forked from the tests': one need not load anew.

What loading takes, a second and a half, is most of what a short command costs.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from coverage import Coverage

from refine.cli import main
from tests.commands import environment, eventually


class Service:
    """A command that runs on beside the test."""

    def __init__(self, arguments: tuple[str, ...], environ: dict[str, str], said: Path) -> None:
        self.code: int | None = None
        self._said = said
        self.pid = os.fork()
        if self.pid == 0:
            nothing = os.open(os.devnull, os.O_RDONLY)
            output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            _run(arguments, environment(environ), nothing, output, output)

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
    given = stdin.encode() if isinstance(stdin, str) else stdin
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if (pid := os.fork()) == 0:
            os.close(writing)
            _run(arguments, environment(environ), reading, out.fileno(), err.fileno())
        os.close(reading)
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
            pipe.write(given)
        code = _code_of(pid, seconds)
        said = [_read_back(stream) for stream in (out, err)]
    return subprocess.CompletedProcess(arguments, code, *said)


def _run(
    arguments: Sequence[str | bytes], own: dict[str, str], stdin: int, stdout: int, stderr: int
) -> NoReturn:
    """Become the command: nothing of the tests' process is seen, or run at the end."""
    code = 70
    try:
        gc.freeze()  # what the tests hold is not this process's to collect
        if (measuring := Coverage.current()) is not None:
            measuring.stop()  # nor what they run, to count
        os.setsid()
        os.chdir("/")
        for number, given in enumerate((stdin, stdout, stderr)):
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


def _code_of(pid: int, seconds: float) -> int:
    """The exit code of a child that ends within this time; else it is killed."""
    deadline = time.monotonic() + seconds
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the command did not end")
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(ended[1])


def _read_back(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode()


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
