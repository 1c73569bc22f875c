"""Tools with which an agent finds and corrects its own memories, whenever it learns better."""

from collections.abc import Mapping
from typing import Any, ClassVar

from refine.errors import InvalidValue, NotFound, Refused
from refine.models import Agent
from refine.models.correcting import correct, forget
from refine.outages import in_one_call
from refine.rules.content import MAX_QUERY_CHARACTERS, bounded_text
from refine.rules.ids import parse_single_id
from refine.rules.second_reading import REASONS
from refine.tools.calls import (
    Result,
    error,
    function_definition,
    instant_in,
    is_blank,
    missing,
    reason_in,
    text_in,
    unknown_parameter,
)
from refine.tools.refinement import MAX_SEARCH_RESULTS

_ID = {"type": "integer", "description": "The id of one memory."}
_REASON = {
    "type": "string",
    "enum": list(REASONS),
    "description": "outdated: it no longer holds; wrong: it never held; same: another one, or the "
    "new text, says the same.",
}


class OwnMemoriesTool:
    """A tool for one agent; ``_carry_out`` does the work of one call."""

    definition: ClassVar[dict[str, Any]]
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def execute(self, /, **params: Any) -> Result:
        """Carry out one call and commit; an ``error`` changes nothing."""
        function = self.definition["function"]
        name, allowed = function["name"], function["parameters"]["properties"]
        if params.keys() - allowed.keys():
            return error(unknown_parameter(name, allowed))
        given = {each: value for each, value in params.items() if not is_blank(value)}
        for each in self.required:
            if each not in given:
                return error(missing(each, name))
        try:
            return in_one_call(lambda: self._carry_out(given))
        except (InvalidValue, NotFound, Refused) as fault:
            return error(str(fault))

    def _carry_out(self, given: Mapping[str, Any]) -> Result:
        raise NotImplementedError


class SearchMemoriesTool(OwnMemoriesTool):
    definition = function_definition(
        "search_memories",
        "Find memories of your own: what you keep, or with retired what you set aside as outdated "
        "or wrong. Leave empty what does not matter.",
        {
            "query": {"type": "string", "description": "A part of the text."},
            "after": {"type": "string", "description": "ISO date, inclusive."},
            "before": {"type": "string", "description": "ISO date, exclusive."},
            "retired": {"type": "boolean", "description": "Usually false."},
        },
    )

    def _carry_out(self, given: Mapping[str, Any]) -> Result:
        query, retired = given.get("query"), given.get("retired", False)
        if query is not None:
            query = bounded_text(query, field="query", limit=MAX_QUERY_CHARACTERS)
        if not isinstance(retired, bool):
            raise InvalidValue("retired must be true or false")
        since, until = (instant_in(name, given.get(name)) for name in ("after", "before"))
        ledger = self._agent.ledger
        found = ledger.matching(ledger.retired() if retired else ledger.kept(), query, since, until)
        results = [
            {**memory.ledger_entry(), "memory_type": memory.memory_type}
            for memory in found[:MAX_SEARCH_RESULTS]
        ]
        return {"type": "search_results", "query": query, "count": len(found), "results": results}


class CorrectMemoryTool(OwnMemoriesTool):
    definition = function_definition(
        "correct_memory",
        "Put a new text in place of one memory of your own, once you know better. The old one is "
        "set aside and can be restored.",
        {
            "id": _ID,
            "content": {"type": "string", "description": "The whole new text."},
            "reason": _REASON,
        },
    )
    required = ("id", "content")

    def _carry_out(self, given: Mapping[str, Any]) -> Result:
        id_, content = parse_single_id(given["id"]), text_in(given["content"])
        new = correct(self._agent, id_, content, reason_in(given.get("reason", "wrong")))
        return {"type": "corrected", "id": new.id, "replaced": id_, "content": new.content}


class ForgetMemoryTool(OwnMemoriesTool):
    definition = function_definition(
        "forget_memory",
        "Set aside one memory of your own that no longer holds, or that somebody asked you to "
        "forget. It can be restored.",
        {"id": _ID, "reason": _REASON},
    )
    required = ("id",)

    def _carry_out(self, given: Mapping[str, Any]) -> Result:
        id_ = parse_single_id(given["id"])
        forget(self._agent, id_, reason_in(given.get("reason", "outdated")))
        return {"type": "forgotten", "id": id_}
