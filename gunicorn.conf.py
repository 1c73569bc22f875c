"""Read by gunicorn before it forks: its first process holds the keys too, in its environment."""

import gc
from typing import Any

from refine import core_dumps

core_dumps.forbid()

preload_app = True  # memory holds only once what the processes share


def when_ready(_arbiter: Any) -> None:
    """Before the fork; the first collection in a process would copy all that it shares."""
    gc.collect()
    gc.freeze()
