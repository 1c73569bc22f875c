"""run_procfile.py PROCFILE GRACE_SECONDS [DATA_DIR]: with servers if a folder is given."""

import os
import sys
from pathlib import Path

from refine.embedded import EmbeddedServers
from refine.supervisor import read_procfile, supervise


def started() -> None:
    sys.stdout.write("all started\n")
    sys.stdout.flush()


def main(procfile: str, grace_seconds: str, data_dir: str = "") -> int:
    servers = EmbeddedServers(Path(data_dir or "."), postgres=bool(data_dir), valkey=bool(data_dir))
    with servers:
        return supervise(
            read_procfile(Path(procfile)),
            environ=os.environ,
            cwd=Path(procfile).parent,
            servers=servers,
            grace_seconds=float(grace_seconds),
            on_started=started,
        )


sys.exit(main(*sys.argv[1:]))
