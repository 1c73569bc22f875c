"""Work on an agent's memory between its sessions: reflections, and extractions of conversations.

``columns`` what the row holds; ``keeping`` what the agent may keep; ``ending`` every end, and
another attempt; ``planning`` who is due, who waits, who was lost; ``totals`` sums over many;
``task`` queueing and claiming. How one is held, ``models.run`` says.
"""

from refine.models.memory_task.columns import KINDS, MAX_KEPT, EndStatus, Kind, Trigger
from refine.models.memory_task.planning import REFLECTION_SCHEDULE
from refine.models.memory_task.task import MAX_WAITING, MemoryTask, ReflectionAlreadyLive
from refine.models.memory_task.totals import Backlog, Tally

__all__ = [
    "KINDS",
    "MAX_KEPT",
    "MAX_WAITING",
    "REFLECTION_SCHEDULE",
    "Backlog",
    "EndStatus",
    "Kind",
    "MemoryTask",
    "ReflectionAlreadyLive",
    "Tally",
    "Trigger",
]
