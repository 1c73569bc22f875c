"""Runs: work for which one worker calls an agent's model."""

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
