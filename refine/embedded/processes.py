"""Child processes that never outlive us, and what a killed parent left running."""

import contextlib
import ctypes
import importlib.util
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from refine.embedded.logs import ServerLog
from refine.errors import EmbeddedError

POLL_SECONDS = 0.02
READY_SECONDS = 120  # recovery after a crash, or reading a long append-only file, takes long
_STOP_SECONDS = 60
_PR_SET_PDEATHSIG = 1

# loaded here, to do as little as possible between fork and exec
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def dies_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    """Return a ``preexec_fn``: the child gets the signal when its parent thread ends (on Linux)."""
    if _libc is None:
        return None
    libc, parent = _libc, os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != parent:  # we died before the line above
            os._exit(1)

    return before_exec


def start_server(
    arguments: Sequence[str | Path],
    log: Path,
    *,
    death_signal: signal.Signals,
    folder: Path = Path("/"),
) -> subprocess.Popen[bytes]:
    """Start a server in its own session, out of reach of Ctrl-C, with its output in the log."""
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own binaries, no shell
            [str(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            # almost empty: an odd locale or PGOPTIONS must not reach it
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
            preexec_fn=dies_with_parent(death_signal),
        )


def wheel_folder(package: str, advice: str) -> Path:
    """Return the folder of an installed wheel; importing it would start a server of its own."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise EmbeddedError(f"{advice} ({package} is not installed)")
    return Path(found.submodule_search_locations[0])


def wait_until(is_done: Callable[[], bool], seconds: float = math.inf) -> bool:
    """Return True as soon as it is done, False if that takes longer."""
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def await_ready(
    title: str, process: subprocess.Popen[bytes], is_ready: Callable[[], bool], log: ServerLog
) -> None:
    """Wait up to ``READY_SECONDS``; EmbeddedError if the server ends or is not ready by then."""
    if not wait_until(lambda: is_ready() or process.poll() is not None, READY_SECONDS):
        raise EmbeddedError(f"{title} is not ready after {READY_SECONDS} s:\n{log.last_lines()}")
    if process.poll() is not None:
        raise EmbeddedError(f"{title} did not start:\n{log.last_lines()}")


def stop_server(process: subprocess.Popen[bytes], *stop_signals: signal.Signals) -> None:
    """Send the signals, ``_STOP_SECONDS`` apart, then SIGKILL; return when the server has ended."""
    for stop_signal in (*stop_signals, signal.SIGKILL):
        process.send_signal(stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return


def stop_leftover(pid: int, mark: str, stop_signal: signal.Signals) -> None:
    """Stop a killed owner's server, if ``pid`` still has ``mark`` in its command line."""
    if mark not in command_line(pid):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, stop_signal)
    if not wait_until(lambda: mark not in command_line(pid), _STOP_SECONDS):
        raise EmbeddedError(f"an older server (process {pid}) does not stop: end it and try again")


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
    """Return the pid in the first line of a pid file, or None."""
    try:
        pid = int(pid_file.read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    return pid if pid > 0 else None
