"""Child processes that never outlive us, and what a killed parent left running."""

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

# loaded here, to do as little as possible between fork and exec
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def dies_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    """Return a ``preexec_fn`` that has the kernel send the signal when we die; None if not Linux.

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
    """Start a server in its own session, out of reach of Ctrl-C, with its output in the log.

    Its environment is empty except for the path: an odd locale or PGOPTIONS must not reach it.
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
    """Send the signals one by one, a minute apart, then SIGKILL; return when it has ended."""
    for stop_signal in (*stop_signals, signal.SIGKILL):
        process.send_signal(stop_signal)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


def stop_leftover(pid: int, mark: str, stop_signal: signal.Signals) -> None:
    """Stop the server that a killed owner left running, if ``pid`` is still that server.

    ``mark`` is a unique part of the server's command line. The pid comes from a file and may belong
    to another process by now.
    """
    if mark not in command_line(pid):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, stop_signal)
    deadline = time.monotonic() + _STOP_SECONDS
    while mark in command_line(pid):
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"an older server (process {pid}) does not stop: end it and try again"
            )
        time.sleep(POLL_SECONDS)


def command_line(pid: int) -> str:
    """Return the arguments of a process, each followed by a space; "" if it has ended."""
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
    """Return the pid in the first line of a pid file; None if there is none."""
    try:
        pid = int(pid_file.read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    return pid if pid > 0 else None
