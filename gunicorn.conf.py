"""Read by gunicorn before it forks: its first process holds the keys too, in its environment."""

from typing import Any

from refine import core_dumps, garbage

core_dumps.forbid()

preload_app = True  # memory holds only once what the processes share


def when_ready(_arbiter: Any) -> None:
    """Called before the fork."""
    garbage.settle()
