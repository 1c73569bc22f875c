"""The tool ``promote``: in a reflection, an agent makes core memories of journal entries."""

from typing import Any

from refine.errors import InvalidValue
from refine.models.runs.task import saving
from refine.rules.ids import parse_ids
from refine.tools.results import Result, error, missing, unknown_parameter
from refine.tools.task_tool import TaskTool

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


class PromoteTool(TaskTool):
    """The tool in one reflection, under the lease that the caller holds."""

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
            return self._in_one_call(lambda: self._promoted(ids))
        except InvalidValue as fault:
            return error(str(fault))

    def _promoted(self, ids: object) -> Result:
        promoted, repeating = saving.promote(self._held(), parse_ids(ids))
        result: Result = {"type": "promoted", "ids": promoted}
        if repeating:
            result["existing"] = [{"id": id_, "kept_as": kept} for id_, kept in repeating.items()]
        return result
