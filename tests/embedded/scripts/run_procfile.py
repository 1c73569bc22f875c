"""run_procfile.py PROCFILE GRACE_SECONDS [DATA_DIR]: with servers if a folder is given."""

import os
import sys
from pathlib import Path

from refine.embedded import owned_servers
from refine.supervisor import read_procfile, supervise


def started() -> None:
    sys.stdout.write("all started\n")
    sys.stdout.flush()


def main(procfile: str, grace_seconds: str, data_dir: str = "") -> int:
    is_wanted = bool(data_dir)
    with owned_servers(Path(data_dir or "."), postgres=is_wanted, valkey=is_wanted) as servers:
        return supervise(
            read_procfile(Path(procfile)),
            environ=os.environ,
            cwd=Path(procfile).parent,
            servers=servers,
            grace_seconds=float(grace_seconds),
            on_started=started,
        )


sys.exit(main(*sys.argv[1:]))
