"""The tool ``save_memory``: an agent adds to its own memory."""

from typing import Any

from refine.errors import InvalidValue
from refine.models import Agent
from refine.models.ledger import MEMORY_TYPES
from refine.rules.content import TAGS
from refine.tools.results import Result, error, unknown_parameter
from refine.tools.transaction import one_call

DEFINITION: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "save_memory",
        "description": (
            "Keep something in your own memory. core: permanent, part of every prompt of yours. "
            "journal: shown to you for one week."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "content": {"type": "string", "description": "The memory, in your own words."},
                "memory_type": {"type": "string", "enum": list(MEMORY_TYPES)},
                "tags": {"type": "array", "items": {"type": "string", "enum": list(TAGS)}},
            },
            "required": ["content", "memory_type"],
            "additionalProperties": False,
        },
    },
}

_PARAMETERS = tuple(DEFINITION["function"]["parameters"]["properties"])


class SaveMemoryTool:
    """The tool for one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def execute(
        self,
        /,
        content: object = None,
        memory_type: object = None,
        tags: object = None,
        **unknown: Any,
    ) -> Result:
        """Save one memory and commit; return ``saved`` with its id, or an ``error``.

        An exact duplicate of a kept core memory is not saved again: the result names the existing
        one, with ``existing`` set.
        """
        if unknown:
            return error(unknown_parameter("save_memory", _PARAMETERS))
        if content is None:
            return error("content is required")
        try:
            with one_call():
                memory, existing = self._agent.ledger.remember(
                    content, memory_type, [] if tags is None else tags
                )
                saved = {"type": "saved", "id": memory.id, "memory_type": memory.memory_type}
        except InvalidValue as fault:
            return error(str(fault))
        return {**saved, "existing": True} if existing else saved
