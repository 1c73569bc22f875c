"""Runs: work for which one worker calls an agent's model."""

from refine.models.runs.access import (
    AccessAlreadyRequested as AccessAlreadyRequested,
    AccessGrant as AccessGrant,
)
from refine.models.runs.periodic_work import PeriodicWork as PeriodicWork
from refine.models.runs.run import (
    LIVE as LIVE,
    LOST_AFTER as LOST_AFTER,
    WORKER_LOST as WORKER_LOST,
    WORKER_STOPPED as WORKER_STOPPED,
    LeaseLost as LeaseLost,
    Run as Run,
)
from refine.models.runs.session import (
    RefinementSession as RefinementSession,
    SessionAlreadyLive as SessionAlreadyLive,
    SessionEntry as SessionEntry,
)
from refine.models.runs.task import (
    MemoryTask as MemoryTask,
    ReflectionAlreadyLive as ReflectionAlreadyLive,
)
