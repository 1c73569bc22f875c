"""Child processes that never outlive us: their start, their end and what a dead parent left."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from refine.errors import EmbeddedError

POLL_SECONDS = 0.02
_STOP_SECONDS = 60
_PR_SET_PDEATHSIG = 1

# Loaded here, because between fork and exec as little as possible should happen.
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def dies_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    """A ``preexec_fn`` that has the kernel send the signal when we die; None but on Linux.

    "We" is the thread that starts the child, so start children from the main thread.
    """
    if _libc is None:
        return None
    libc, parent = _libc, os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # we died before the line above
            os._exit(1)

    return before_exec


def start_server(
    arguments: Sequence[str | Path], log: Path, *, death_signal: signal.Signals
) -> subprocess.Popen[bytes]:
    """Starts a server in a session of its own, which Ctrl-C cannot reach; what it says is logged.

    Its environment is empty but for the path: a strange locale or PGOPTIONS must not reach it.
    """
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own binaries, no shell
            [str(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
            preexec_fn=dies_with_parent(death_signal),
        )


def stop_server(process: subprocess.Popen[bytes], *stop_signals: signal.Signals) -> None:
    """Sends the signals one by one, a minute apart, then kills; returns when it is gone."""
    for stop_signal in (*stop_signals, signal.SIGKILL):
        process.send_signal(stop_signal)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


def stop_leftover(pid: int, mark: str, stop_signal: signal.Signals) -> None:
    """Stops the server that a killed owner left running, if ``pid`` is that one.

    ``mark`` is a part of the server's command line that no other process has. The pid alone proves
    nothing: it comes from a file, and may be some other process by now.
    """
    if mark not in command_line(pid):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, stop_signal)
    deadline = time.monotonic() + _STOP_SECONDS
    while mark in command_line(pid):
        if time.monotonic() > deadline:
            raise EmbeddedError(f"an older server (process {pid}) does not stop: end it, try again")
        time.sleep(POLL_SECONDS)


def command_line(pid: int) -> str:
    """The arguments of a process with a space after each; nothing if it has ended."""
    if Path("/proc/self").exists():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return os.fsdecode(arguments).replace("\0", " ")
    ps = shutil.which("ps") or "/bin/ps"
    shown = subprocess.run([ps, "-ww", "-o", "args=", "-p", str(pid)], capture_output=True)  # noqa: S603
    return os.fsdecode(shown.stdout).rstrip("\n") + " "


def recorded_pid(pid_file: Path) -> int | None:
    """The number in the first line of a pid file; None if there is no file or no such number."""
    try:
        pid = int(pid_file.read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    return pid if pid > 0 else None
