"""The tool ``save_memory`` of an extraction, which saves only journal memories."""

from refine.errors import InvalidValue
from refine.models import AgentMemory
from refine.models.runs.task import saving
from refine.tools.save_memory import SavingTool, definition
from refine.tools.task_tool import TaskTool

DEFINITION = definition(
    "Keep something in your journal, where it is shown to you for one week.",
    memory_types=["journal"],
)


class SaveToJournalTool(TaskTool, SavingTool):
    """The tool in one extraction, under the lease that the caller holds.

    LeaseLost if the task is no longer the caller's.
    """

    def _save(self, content: object, memory_type: object, tags: object) -> tuple[AgentMemory, bool]:
        if memory_type not in (None, "journal"):
            raise InvalidValue("memory_type must be journal: a conversation yields nothing else")
        return saving.save(self._held(), content, tags)
