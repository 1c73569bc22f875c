"""The tool ``save_memory`` of an extraction, which saves journal memories alone."""

import uuid
from typing import Any

from refine.errors import InvalidValue
from refine.models import MemoryTask
from refine.models.runs.task import saving
from refine.rules.content import TAGS
from refine.tools.results import Result, error, unknown_parameter
from refine.tools.transaction import one_call

DEFINITION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "save_memory",
        "description": "Keep something in your journal, where it is shown to you for one week.",
        "parameters": {
            "type": "object",
            "properties": {
                "content": {"type": "string", "description": "The memory, in your own words."},
                "memory_type": {"type": "string", "enum": ["journal"]},
                "tags": {"type": "array", "items": {"type": "string", "enum": list(TAGS)}},
            },
            "required": ["content"],
            "additionalProperties": False,
        },
    },
}

_PARAMETERS = tuple(DEFINITION["function"]["parameters"]["properties"])


class SaveToJournalTool:
    """The tool in one extraction, under the lease that the caller holds."""

    def __init__(self, task_id: uuid.UUID, lease_token: uuid.UUID) -> None:
        self._task_id = task_id
        self._lease_token = lease_token

    def execute(
        self,
        /,
        content: object = None,
        memory_type: object = None,
        tags: object = None,
        **unknown: Any,
    ) -> Result:
        """Save one journal memory and commit; return ``saved`` with its id, or an ``error``.

        An exact duplicate is not saved again: the result names the existing memory, with
        ``existing`` set. LeaseLost if the task is no longer the caller's.
        """
        if unknown:
            return error(unknown_parameter("save_memory", _PARAMETERS))
        if memory_type not in (None, "journal"):
            return error("memory_type must be journal: a conversation yields nothing else")
        if content is None:
            return error("content is required")
        try:
            with one_call():
                task = MemoryTask.held(self._task_id, self._lease_token)
                memory, existing = saving.save(task, content, [] if tags is None else tags)
                saved = {"type": "saved", "id": memory.id, "memory_type": memory.memory_type}
        except InvalidValue as fault:
            return error(str(fault))
        return {**saved, "existing": True} if existing else saved
