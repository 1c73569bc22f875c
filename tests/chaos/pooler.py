"""PgBouncer in transaction mode in front of the embedded PostgreSQL, where it is installed."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refine.embedded import database_url
from refine.embedded.as_root import postgres_user
from refine.embedded.folders import socket_dir
from tests.commands import eventually

_CONFIG = """
[databases]
* = host={host} port=5432 user=refine
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
"""


@contextmanager
def pooled(folder: Path) -> Iterator[dict[str, str]]:
    """Run it for the servers in this folder, and yield the variables of who uses it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        print("without PgBouncer, which is not installed (apt-get install pgbouncer)")
        yield {}
        return
    cluster = folder / "postgres"
    user = postgres_user(cluster)
    # as root, PostgreSQL runs as another user, who may only go where it is already
    here, prefix = ("/proc/self/cwd", user.command_prefix()) if user else (str(cluster), [])
    config = cluster / "pgbouncer.ini"
    host = here if user else str(socket_dir(folder))
    config.write_text(_CONFIG.format(host=host, folder=here))
    if user:
        os.chown(config, user.uid, user.gid)
    with (folder / "logs" / "pgbouncer.log").open("ab") as log:
        process = subprocess.Popen(
            [*prefix, program, "-q", f"{here}/pgbouncer.ini"],
            cwd=cluster,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(lambda: (cluster / ".s.PGSQL.6432").exists() or process.poll() is not None)
        yield {
            "DATABASE_URL": f"postgresql+psycopg://refine@/refine?host={cluster}&port=6432",
            "REFINE_OWNER_DATABASE_URL": database_url(folder),
            "REFINE_POOLED": "1",
        }
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(10)
