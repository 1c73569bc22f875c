"""Runs the processes of a Procfile, and restarts those that exit, until a signal arrives."""

import multiprocessing
import os
import re
import runpy
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import TextIO, cast

from refine import garbage
from refine.embedded import Processes
from refine.embedded.processes import dies_with_parent
from refine.errors import SettingsError

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CHUNK_BYTES = 65_536
_PROCESS = re.compile(r"^([A-Za-z0-9_-]+):\s*(.+)$", re.MULTILINE)
_WAKE_SECONDS = 1.0  # signals wake us up; this is in case one is lost

# The pause before a process is started again: doubled each time, until it has run for the longest.
_FIRST_PAUSE_SECONDS = 1
_LONGEST_PAUSE_SECONDS = 60
# What ends by itself so soon after its first start (a bad setting, a taken port) cannot start.
_STARTING_SECONDS = 10


def read_procfile(path: Path) -> dict[str, str]:
    """Return the commands of a Procfile by process name, in order; SettingsError for a bad file."""
    try:
        lines = _PROCESS.findall(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    commands = dict(lines)
    if len(commands) < len(lines):
        raise SettingsError(f"{path} defines two processes with the same name")
    if not commands:
        raise SettingsError(f"{path} defines no process; each line is `name: command`")
    return commands


def supervise(
    commands: Mapping[str, str],
    *,
    environ: Mapping[str, str],
    cwd: Path,
    servers: Processes,
    grace_seconds: float = 20,
    on_started: Callable[[], None] | None = None,
    output: TextIO | None = None,
) -> int:
    """Run the commands from the main thread, each line of output prefixed with the process's name.

    A process that ends is started again after a pause; the others run on. Returns 0 after SIGINT,
    SIGTERM or SIGHUP, 1 if one of the ``servers`` ended or a process cannot start. All processes
    have ended by then: by SIGTERM, after the grace period or a second Ctrl-C by SIGKILL.

    Each process is a fork of this one, so that memory holds what they load only once: load it
    before, and have no thread and no connection. (While there is a new thread, nothing is started
    again.) The shell runs what is no Python program with ``exec``: write variables as
    ``env NAME=value command``.
    """
    with _stop_signals() as signals:
        run = _Processes(servers, signals, _Output([*commands, "refine"], output or sys.stdout))
        try:
            run.start(commands, {"PYTHONUNBUFFERED": "1", **environ}, cwd)
            if on_started and not signals.received:
                on_started()
            ended = run.watch()
        finally:
            run.stop(grace_seconds)
    return 1 if ended else 0


class _Signals:
    """The stop signals received so far, and a descriptor that becomes readable with each."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.wake, self.wake_end = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self.wake_end, False)

    def remember(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)

    def twice_interrupted(self) -> bool:
        return self.received.count(signal.SIGINT) > 1

    def close(self) -> None:
        os.close(self.wake)
        os.close(self.wake_end)


@contextmanager
def _stop_signals() -> Iterator[_Signals]:
    """Handle the stop signals, even if they were ignored when we started; restore them after."""
    signals = _Signals()
    wakeup_before = signal.set_wakeup_fd(signals.wake_end, warn_on_full_buffer=False)
    before = {number: signal.signal(number, signals.remember) for number in _STOP_SIGNALS}
    # without a handler, the end of a child would not wake us up
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(wakeup_before)
        signals.close()


class _Output:
    """Writes lines, prefixed with the padded name of the process that wrote them."""

    def __init__(self, names: list[str], stream: TextIO) -> None:
        self._width = max(map(len, names))
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def line(self, name: str, text: str) -> None:
        shown = f"{name:<{self._width}} | {text}\n".encode(self._encoding, "replace")
        with suppress(OSError):  # a closed terminal or pipe must not end the service
            self._stream.write(shown.decode(self._encoding))
            self._stream.flush()


class _Child:
    """A process, forked from this one, and what it writes."""

    def __init__(self, name: str, run: Callable[[], None]) -> None:
        """Return when the process has a group of its own, in which signals reach it."""
        self.name = name
        self._unfinished = b""
        self._began = time.monotonic()
        dies_with_us = dies_with_parent(signal.SIGTERM) or (lambda: None)
        reader, writer = os.pipe()
        is_apart, apart = os.pipe()

        def begin() -> None:
            dies_with_us()
            _leave_parent(name, writer)
            for end in (reader, writer, is_apart, apart):
                os.close(end)
            run()

        self.process = multiprocessing.get_context("fork").Process(target=begin, name=name)
        self.process.start()
        for end in (writer, apart):
            os.close(end)
        os.read(is_apart, 1)
        os.close(is_apart)
        self.stdout = os.fdopen(reader, "rb", buffering=0)

    def forward(self, output: _Output) -> bool:
        """Write the complete lines; return False at the end of the output."""
        chunk = os.read(self.stdout.fileno(), _CHUNK_BYTES)
        *lines, rest = (self._unfinished + chunk).split(b"\n")
        if rest and (not chunk or len(rest) > _CHUNK_BYTES):
            lines, rest = [*lines, rest], b""
        self._unfinished = rest
        for line in lines:
            output.line(self.name, line.decode(errors="replace").rstrip("\r"))
        return bool(chunk)

    def signal(self, number: signal.Signals) -> None:
        # its group may outlive it
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
            os.killpg(cast(int, self.process.pid), number)

    def end(self) -> None:
        """End it at once, and everything left in its group."""
        self.signal(signal.SIGKILL)
        self.process.join()

    def has_run_for(self, seconds: float) -> bool:
        return time.monotonic() - self._began >= seconds


class _Processes:
    """All processes, from the start to the end of the last one."""

    def __init__(self, servers: Processes, signals: _Signals, output: _Output) -> None:
        self._servers = servers
        self._signals = signals
        self._output = output
        self._programs: dict[str, Callable[[], None]] = {}
        self._children: list[_Child] = []
        # of those that ended: how long the last pause is, and when it is over
        self._pauses: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._threads = threading.active_count()
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.wake, selectors.EVENT_READ)

    def start(self, commands: Mapping[str, str], environ: Mapping[str, str], cwd: Path) -> None:
        garbage.settle()
        for name, command in commands.items():
            if self._signals.received:
                return
            self._programs[name] = partial(self._run, command, environ, cwd)
            self._start(name)

    def _start(self, name: str) -> None:
        child = _Child(name, self._programs[name])
        self._children.append(child)
        self._selector.register(child.stdout, selectors.EVENT_READ, child)

    def _run(self, command: str, environ: Mapping[str, str], cwd: Path) -> None:
        """Be the process of this command, and no longer the parent of the others."""
        self._selector.close()
        self._signals.close()
        for child in self._children:
            child.stdout.close()
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environ)
        _run(command)

    def watch(self) -> bool:
        """Return when everything should stop: True if it cannot go on, False after a signal."""
        while not self._signals.received:
            if reason := self._reason_to_end():
                self._drain()
                self._say(f"{reason}; stopping everything")
                return True
            self._replace_ended()
            self._pump(_WAKE_SECONDS)
        self._say(f"{signal.Signals(self._signals.received[0]).name}: stopping")
        return False

    def _reason_to_end(self) -> str | None:
        """Return which server ended or which process cannot start, in words; or None."""
        for name, server in self._servers.items():
            if (code := server.poll()) is not None:
                return f"embedded {name} {_in_words(code)}"
        for child in self._ended():
            code = cast(int, child.process.exitcode)
            is_first = child.name not in self._pauses
            if is_first and code >= 0 and not child.has_run_for(_STARTING_SECONDS):
                return f"{child.name} {_in_words(code)}"
        return None

    def _ended(self) -> list[_Child]:
        return [child for child in self._children if child.process.exitcode is not None]

    def _replace_ended(self) -> None:
        """Start each process that ended again, once its pause is over."""
        for child in self._ended():
            self._remove(child)
            pause = self._pause_after(child)
            self._pauses[child.name], self._due[child.name] = pause, time.monotonic() + pause
            ending = _in_words(cast(int, child.process.exitcode))
            self._say(f"{child.name} {ending}; starting it again in {pause:.0f} s")
        if threading.active_count() > self._threads:  # a fork would copy the locks that it holds
            return
        for name in [name for name, at in self._due.items() if at <= time.monotonic()]:
            del self._due[name]
            self._start(name)

    def _pause_after(self, child: _Child) -> float:
        if child.name not in self._pauses or child.has_run_for(_LONGEST_PAUSE_SECONDS):
            return _FIRST_PAUSE_SECONDS
        return min(2 * self._pauses[child.name], _LONGEST_PAUSE_SECONDS)

    def _remove(self, child: _Child) -> None:
        child.end()
        self._drain()
        self._children.remove(child)
        with suppress(KeyError):  # its output has ended
            self._selector.unregister(child.stdout)
        child.stdout.close()

    def stop(self, grace_seconds: float) -> None:
        """End all processes, and everything left in their process groups."""
        try:
            self._terminate(grace_seconds)
        finally:
            for child in self._children:
                child.end()
            self._drain()
            for child in self._children:
                child.stdout.close()
            self._selector.close()

    def _terminate(self, grace_seconds: float) -> None:
        for child in self._children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while names := [child.name for child in self._children if child.process.exitcode is None]:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._signals.twice_interrupted():
                self._say(f"killing {', '.join(names)}")
                return
            self._pump(min(remaining, _WAKE_SECONDS))

    def _pump(self, timeout_seconds: float) -> bool:
        """Forward output for up to this time; return False if there was none."""
        has_output = False
        for key, _ in self._selector.select(timeout_seconds):
            if key.data is None:
                os.read(self._signals.wake, _CHUNK_BYTES)
                continue
            has_output = True
            if not key.data.forward(self._output):
                self._selector.unregister(key.fileobj)
        return has_output

    def _drain(self) -> None:
        """Forward the last output, for at most a second: a grandchild may go on writing."""
        deadline = time.monotonic() + 1
        while self._pump(0) and time.monotonic() < deadline:
            pass

    def _say(self, text: str) -> None:
        self._output.line("refine", text)


def _in_words(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"


def _leave_parent(name: str, output: int) -> None:
    """After the fork: a session, signals and streams of our own, as a new process has them."""
    os.setsid()
    with suppress(OSError):  # what `top` shows, on Linux
        Path("/proc/self/comm").write_text(f"refine {name}")
    signal.set_wakeup_fd(-1)
    for number in (*_STOP_SIGNALS, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def _run(command: str) -> None:
    """Run a command of a Procfile in this process, by the shell if it is no Python program."""
    words = _words(command)
    if words[:2] == ["python", "-m"]:
        sys.argv = words[2:]
        # the entry point of `refine` has loaded it; runpy would warn of that
        sys.modules.pop(f"{words[2]}.__main__", None)
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        return
    for script in entry_points(group="console_scripts", name=words[0]):
        sys.argv = words
        sys.exit(script.load()())
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
    os.execv("/bin/sh", ["sh", "-c", f"exec {command}"])  # noqa: S606 - a Procfile holds shell commands


def _words(command: str) -> list[str]:
    """Return what the shell makes of a command: variables expanded, quotes removed."""
    script = ["/bin/sh", "-c", f"printf '%s\\0' {command}"]
    said = subprocess.run(script, stdout=subprocess.PIPE, check=False).stdout  # noqa: S603 - as above
    return os.fsdecode(said).split("\0")[:-1]
