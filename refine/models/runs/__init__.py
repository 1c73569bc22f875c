"""Runs: a run is work for which one worker calls an agent's model.

``run`` is what all kinds share: waiting, the lease, the cost, lost workers. ``session`` refines
core memories, ``task`` adds to memory between sessions, and ``saving`` is what it may keep;
``access`` asks the agent to let a human read. ``spending`` adds up what they used and cost,
``workload`` counts what waits, runs and has ended; ``clock_mark`` remembers the clock's rounds.
"""

from refine.models.runs.access import AccessAlreadyRequested, AccessGrant
from refine.models.runs.clock_mark import ClockMark
from refine.models.runs.run import LIVE, LOST_AFTER, WORKER_LOST, LeaseLost, Run
from refine.models.runs.session import RefinementSession, SessionAlreadyLive, SessionEntry
from refine.models.runs.task import MemoryTask, ReflectionAlreadyLive

__all__ = [
    "LIVE",
    "LOST_AFTER",
    "WORKER_LOST",
    "AccessGrant",
    "AccessAlreadyRequested",
    "ClockMark",
    "LeaseLost",
    "MemoryTask",
    "RefinementSession",
    "ReflectionAlreadyLive",
    "Run",
    "SessionAlreadyLive",
    "SessionEntry",
]
