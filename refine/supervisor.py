"""Runs programs as forks of this process, and starts those that end again."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from refine import stopping
from refine.embedded import Processes
from refine.embedded.processes import dies_with_parent

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A wait is not ended by a signal.
_WAKE_SECONDS = 0.5
_PAUSE_SECONDS = 2
# A program that ends by itself this soon after its first start (a bad setting) cannot start.
_STARTING_SECONDS = 10

Program = Callable[[], None]


def supervise(
    programs: Mapping[str, Program],
    *,
    servers: Processes,
    grace_seconds: float = 20,
    look_in: Callable[[], None] = lambda: None,
) -> int:
    """Run the programs from the main thread, until SIGINT, SIGTERM or SIGHUP; ``look_in`` often.

    Returns 0 after a signal, 1 if one of the ``servers`` ended or a program cannot start. All have
    ended by then: by SIGTERM, after the grace period or a second Ctrl-C by SIGKILL.

    Each program is a fork, so that memory holds what they load only once: load it before, and have
    no thread and no connection.
    """
    with stopping.handle_stop_signals(*_STOP_SIGNALS) as received:
        children = [_Child(name, program) for name, program in programs.items()]
        try:
            while not received:
                if (reason := _reason_to_end(servers, children)) is not None:
                    _say(f"{reason}; stopping everything")
                    return 1
                for child in children:
                    child.keep_running()
                look_in()
                wait(
                    [child.process.sentinel for child in children if child.is_alive], _WAKE_SECONDS
                )
            _say(f"{signal.Signals(received[0]).name}: stopping")
            return 0
        finally:
            _stop(children, grace_seconds, received)


def _reason_to_end(servers: Processes, children: "list[_Child]") -> str | None:
    for name, server in servers.items():
        if (code := server.poll()) is not None:
            return f"embedded {name} {_in_words(code)}"
    for child in children:
        if child.cannot_start:
            return f"{child.name} {_in_words(child.process.exitcode or 0)}"
    return None


class _Child:
    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self._program = program
        self._due_at: float | None = None
        self._starts = 0
        self._start()

    @property
    def is_alive(self) -> bool:
        return self.process.exitcode is None

    @property
    def cannot_start(self) -> bool:
        code, age = self.process.exitcode, time.monotonic() - self._began
        return code is not None and code >= 0 and self._starts == 1 and age < _STARTING_SECONDS

    def keep_running(self) -> None:
        if self.is_alive:
            return
        if self._due_at is None:
            self.signal(signal.SIGKILL)  # what is left in its group
            self._due_at = time.monotonic() + _PAUSE_SECONDS
            ending = _in_words(self.process.exitcode or 0)
            _say(f"{self.name} {ending}; starting it again in {_PAUSE_SECONDS} s")
        elif time.monotonic() >= self._due_at:
            self._due_at = None
            self._start()

    def signal(self, number: signal.Signals) -> None:
        pid = self.process.pid or 0
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for zombies
            try:
                os.killpg(pid, number)
            except ProcessLookupError:
                if self.is_alive:  # it has just been forked, and has no group yet
                    os.kill(pid, number)

    def _start(self) -> None:
        sys.stdout.flush()
        self._began = time.monotonic()
        self._starts += 1
        dies_with_us = dies_with_parent(signal.SIGTERM) or (lambda: None)

        def begin() -> None:
            dies_with_us()
            _leave_parent(self.name)
            self._program()

        self.process = multiprocessing.get_context("fork").Process(target=begin, name=self.name)
        self.process.start()


def _leave_parent(name: str) -> None:
    os.setsid()
    with suppress(OSError):  # what `top` shows, on Linux
        Path("/proc/self/comm").write_text(f"refine {name}")
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _stop(children: list[_Child], grace_seconds: float, received: list[int]) -> None:
    for child in children:
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while living := [child for child in children if child.is_alive]:
        left = deadline - time.monotonic()
        if left <= 0 or received.count(signal.SIGINT) > 1:
            _say(f"killing {', '.join(child.name for child in living)}")
            break
        wait([child.process.sentinel for child in living], min(left, _WAKE_SECONDS))
    for child in children:
        child.signal(signal.SIGKILL)
        child.process.join()


def _in_words(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"


def _say(text: str) -> None:
    with suppress(OSError):  # a closed terminal or pipe must not end the service
        sys.stdout.write(f"refine: {text}\n")
        sys.stdout.flush()
