"""Commands of Refine that run on beside a test: forked, as loading one anew takes seconds."""

import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from coverage import Coverage

from refine.cli import main
from tests.commands import environment, eventually


class Service:
    """A command of Refine as a process of its own, forked from this one: it need not load it."""

    def __init__(self, arguments: tuple[str, ...], environ: dict[str, str], said: Path) -> None:
        self.code: int | None = None
        self._said = said
        own = environment(environ)
        self.pid = os.fork()
        if self.pid == 0:
            _run(arguments, own, said)

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


def _run(arguments: tuple[str, ...], own: dict[str, str], said: Path) -> NoReturn:
    code = 70
    try:
        gc.freeze()  # what the tests hold is not this process's to collect
        if (measuring := Coverage.current()) is not None:
            measuring.stop()  # nor what they run, to count
        os.setsid()
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
        os.environ.clear()
        os.environ.update(own)
        main(list(arguments))
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
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
