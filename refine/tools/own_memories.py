"""Tools with which an agent finds and corrects its own memories, whenever it learns better."""

from typing import Any

from refine.errors import InvalidValue, NotFound, Refused
from refine.models import Agent, correcting
from refine.outages import in_one_call
from refine.rules.second_reading import REASONS
from refine.tools.calls import Result, error, function_definition
from refine.tools.refinement import (
    MAX_SEARCH_RESULTS,
    given_in,
    parse_single_id,
    reason_in,
    search_in,
    text_in,
)

# The parameters of each tool; those in the first tuple are required.
_TAKEN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "search_memories": ((), ("query", "after", "before", "retired")),
    "correct_memory": (("id", "content"), ("reason",)),
    "forget_memory": (("id",), ("reason",)),
}
_ID = {"type": "integer", "description": "The id of one memory."}
_REASON = {
    "type": "string",
    "enum": list(REASONS),
    "description": "outdated: no longer so; wrong: never so; same: it is said elsewhere, or anew.",
}
DEFINITIONS = [
    function_definition(
        "search_memories",
        "Find memories of your own: what you keep or, with retired, what you set aside as outdated "
        "or wrong. Leave empty what does not matter.",
        {
            "query": {"type": "string", "description": "A part of the text."},
            "after": {"type": "string", "description": "ISO date, inclusive."},
            "before": {"type": "string", "description": "ISO date, exclusive."},
            "retired": {"type": "boolean", "description": "Usually false."},
        },
    ),
    function_definition(
        "correct_memory",
        "Put a new text in place of one memory of your own, once you know better. The old one is "
        "set aside and can be restored.",
        {
            "id": _ID,
            "content": {"type": "string", "description": "The whole new text."},
            "reason": _REASON,
        },
    ),
    function_definition(
        "forget_memory",
        "Set aside one memory of your own that no longer holds, or that somebody asked you to "
        "forget. It can be restored.",
        {"id": _ID, "reason": _REASON},
    ),
]


class OwnMemoriesTool:
    """One of the tools, for one agent."""

    def __init__(self, name: str, agent: Agent) -> None:
        self._name, self._agent = name, agent

    def execute(self, /, **params: Any) -> Result:
        """Carry out one call and commit; an ``error`` changes nothing."""
        try:
            given = given_in(params, self._name, *_TAKEN[self._name])
            return in_one_call(lambda: getattr(self, f"_{self._name}")(**given))
        except (InvalidValue, NotFound, Refused) as fault:
            return error(str(fault))

    def _search_memories(self, **wanted: object) -> Result:
        ledger = self._agent.ledger
        text, found = search_in(ledger, ledger.kept(), **wanted)
        shown = [
            {**memory.ledger_entry(), "memory_type": memory.memory_type}
            for memory in found[:MAX_SEARCH_RESULTS]
        ]
        return {"type": "search_results", "query": text, "count": len(found), "results": shown}

    def _correct_memory(self, id: object, content: object, reason: object = "wrong") -> Result:
        id_, text, why = parse_single_id(id), text_in(content), reason_in(reason)
        new = correcting.correct(self._agent, id_, text, why)
        return {"type": "corrected", "id": new.id, "replaced": id_, "content": new.content}

    def _forget_memory(self, id: object, reason: object = "outdated") -> Result:
        memory = correcting.forget(self._agent, parse_single_id(id), reason_in(reason))
        return {"type": "forgotten", "id": memory.id}
