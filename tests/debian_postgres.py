"""Debian's PostgreSQL 15, the oldest that Refine works with, where it is installed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from refine.embedded import postgres
from refine.embedded.as_root import postgres_user
from refine.embedded.folders import POSTGRES_SOCKET, make_private, socket_dir
from refine.embedded.processes import new_log, running_server

BINARIES = Path("/usr/lib/postgresql/15/bin")
_INITDB = ("--username=refine", "--auth=trust", "--encoding=UTF8", "--locale=C")


@contextmanager
def running(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run it in this folder, in the place of the embedded one."""
    cluster, sockets = folder / "postgres", socket_dir(folder)
    make_private(sockets)
    make_private(cluster)
    prefix = list[str | Path]()
    if user := postgres_user(cluster):  # who may then go through to it
        folder.chmod(0o711)
        os.chown(cluster, user.uid, user.gid)
        prefix = user.command_prefix()
    made = [*prefix, BINARIES / "initdb", "-D", cluster, *_INITDB]
    subprocess.run(made, cwd=cluster, check=True, stdout=subprocess.DEVNULL)
    (sockets / POSTGRES_SOCKET).symlink_to(cluster / POSTGRES_SOCKET)
    options = ("-c", "listen_addresses=", "-c", f"unix_socket_directories={cluster}")
    with running_server(
        "PostgreSQL",
        [*prefix, BINARIES / "postgres", "-D", cluster, *options],
        new_log(folder / "postgres.log"),
        is_ready=lambda pid: postgres._is_ready(pid, cluster),
        stop_signals=[signal.SIGINT],
        folder=cluster,
    ) as process:
        with psycopg.connect(f"host={sockets} user=refine dbname=postgres", autocommit=True) as to:
            to.execute("CREATE DATABASE refine")
        yield process
