"""The tools of memory tasks: ``promote``, ``save_memory`` and, for a person, ``memories_about``."""

import uuid
from collections.abc import Callable

from refine.errors import InvalidValue, NotFound, Refused
from refine.extensions import db
from refine.models import AgentMemory, MemoryTask, erasing
from refine.models.runs import task as tasks
from refine.outages import NO_RETRY, RetryPolicy, in_one_call
from refine.tools.calls import Result, Tool, function_definition
from refine.tools.refinement import MAX_SEARCH_RESULTS, parse_ids, search_in
from refine.tools.save_memory import SavingTool, saving_definition


class TaskTool(Tool):
    """A tool in one memory task, under the caller's lease; LeaseLost."""

    def __init__(
        self, task_id: uuid.UUID, lease_token: uuid.UUID, retry: RetryPolicy = NO_RETRY
    ) -> None:
        self._task_id = task_id
        self._lease_token = lease_token
        self._retry = retry
        self._kept_before = 0

    def _held(self) -> MemoryTask:
        task = MemoryTask.held(self._task_id, self._lease_token)
        self._kept_before = task.memories_kept
        return task

    def _in_one_call(self, work: Callable[[], Result]) -> Result:
        return in_one_call(work, self._retry, self._has_kept_more)

    def _has_kept_more(self) -> bool:
        task = db.session.get_one(MemoryTask, self._task_id)
        task.lock()
        return task.memories_kept > self._kept_before


class PromoteTool(TaskTool):
    name, required = "promote", ("ids",)
    definition = function_definition(
        "promote",
        "Keep journal entries for good: they become core memories of yours, as they stand.",
        {
            "ids": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "The ids of the journal entries.",
            }
        },
    )

    def _carry_out(self, ids: object) -> Result:
        """``existing`` names exact duplicates, which stay."""
        promoted, repeating = tasks.promote(self._held(), parse_ids(ids))
        result: Result = {"type": "promoted", "ids": promoted}
        if repeating:
            result["existing"] = [{"id": id_, "kept_as": kept} for id_, kept in repeating.items()]
        return result


class SaveToJournalTool(TaskTool, SavingTool):
    definition = saving_definition(
        "Keep something in your journal, where it is shown to you for one week.", ["journal"]
    )

    def _save(self, content: object, memory_type: object, tags: object) -> tuple[AgentMemory, bool]:
        if memory_type not in (None, "journal"):
            raise InvalidValue("memory_type must be journal: a conversation yields nothing else")
        return tasks.save(self._held(), content, tags)


class ErasePersonTool(TaskTool):
    name, optional = "memories_about", ("query", "erase")
    definition = function_definition(
        "memories_about",
        "Search all that you ever kept, or say which of these memories are to be erased for good.",
        {
            "query": {"type": "string", "description": "A part of the text."},
            "erase": {
                "type": "array",
                "items": {"type": "integer"},
                "description": "The ids of memories that are about the person.",
            },
        },
    )

    def _carry_out(self, query: object = None, erase: object = None) -> Result:
        """Search, or have memories erased in a day; ``refused`` says of each why it stays."""
        if (query is None) == (erase is None):
            raise InvalidValue("memories_about takes either query or erase")
        return self._search(query) if erase is None else self._erase(parse_ids(erase))

    def _search(self, query: object) -> Result:
        ledger = self._held().agent.ledger
        text, found = search_in(ledger, ledger.written(), query)
        shown = [memory.ledger_entry() for memory in found[:MAX_SEARCH_RESULTS]]
        return {"type": "search_results", "query": text, "count": len(found), "results": shown}

    def _erase(self, ids: list[int]) -> Result:
        agent, refused = self._held().agent, {}
        for id_ in ids:
            try:
                erasing.erase(agent, id_, "data subject")
            except (NotFound, Refused) as refusal:
                refused[id_] = str(refusal)
        return {"type": "to_be_erased", "ids": sorted({*ids} - {*refused}), "refused": refused}
