"""The tool ``promote``: in a reflection, an agent makes core memories of journal entries."""

import uuid
from typing import Any

from refine.errors import InvalidValue
from refine.models import MemoryTask
from refine.models.runs.task import saving
from refine.rules.ids import parse_ids
from refine.tools.results import Result, error, missing, unknown_parameter
from refine.tools.transaction import one_call

DEFINITION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "promote",
        "description": (
            "Keep journal entries for good: they become core memories of yours, as they stand."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "ids": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "The ids of the journal entries.",
                },
            },
            "required": ["ids"],
            "additionalProperties": False,
        },
    },
}


class PromoteTool:
    """The tool in one reflection, under the lease that the caller holds."""

    def __init__(self, task_id: uuid.UUID, lease_token: uuid.UUID) -> None:
        self._task_id = task_id
        self._lease_token = lease_token

    def execute(self, /, ids: object = None, **unknown: Any) -> Result:
        """Promote the entries and commit; return ``promoted`` with their ids, or an ``error``.

        Exact duplicates of kept core memories are not promoted: ``existing`` names each, and the
        memory that it repeats. LeaseLost if the task is no longer the caller's.
        """
        if unknown:
            return error(unknown_parameter("promote", ["ids"]))
        if ids is None:
            return error(missing("ids", "promote"))
        try:
            with one_call():
                task = MemoryTask.held(self._task_id, self._lease_token)
                promoted, repeating = saving.promote(task, parse_ids(ids))
        except InvalidValue as fault:
            return error(str(fault))
        result: Result = {"type": "promoted", "ids": promoted}
        if repeating:
            result["existing"] = [{"id": id_, "kept_as": kept} for id_, kept in repeating.items()]
        return result
