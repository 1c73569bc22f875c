"""Read by gunicorn before it forks: its first process holds the keys too, in its environment."""

from refine import core_dumps

core_dumps.forbid()
