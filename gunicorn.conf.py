"""Read by gunicorn before it forks: its first process holds the keys too, in its environment."""

import gc
import os
from typing import Any

from refine import core_dumps

core_dumps.forbid()

bind = f"{os.environ.get('HOST') or '0.0.0.0'}:{os.environ.get('PORT') or 8000}"  # noqa: S104
workers = int(os.environ.get("WEB_CONCURRENCY") or 2)
worker_class = "gthread"
threads = 8
loglevel = "warning"
control_socket_disable = True
preload_app = True  # memory holds only once what the processes share


def when_ready(_arbiter: Any) -> None:
    """Called before the fork."""
    gc.freeze()
