"""The tool ``save_memory`` of an extraction, which saves journal memories alone."""

import uuid

from refine.errors import InvalidValue
from refine.models import AgentMemory, MemoryTask
from refine.models.runs.task import saving
from refine.tools.save_memory import SavingTool, definition

DEFINITION = definition(
    "Keep something in your journal, where it is shown to you for one week.",
    memory_types=["journal"],
)


class SaveToJournalTool(SavingTool):
    """The tool in one extraction, under the lease that the caller holds.

    LeaseLost if the task is no longer the caller's.
    """

    def __init__(self, task_id: uuid.UUID, lease_token: uuid.UUID) -> None:
        self._task_id = task_id
        self._lease_token = lease_token

    def _save(self, content: object, memory_type: object, tags: object) -> tuple[AgentMemory, bool]:
        if memory_type not in (None, "journal"):
            raise InvalidValue("memory_type must be journal: a conversation yields nothing else")
        task = MemoryTask.held(self._task_id, self._lease_token)
        return saving.save(task, content, tags)
