"""The tool ``save_memory``: an agent adds to its own memory."""

from collections.abc import Callable, Sequence
from typing import Any

from refine.errors import InvalidValue
from refine.models import Agent, AgentMemory
from refine.models.ledger.memory import MEMORY_TYPES
from refine.outages import in_one_call
from refine.rules.content import TAGS
from refine.tools.calls import Result, error, function_definition, unknown_parameter


def saving_definition(description: str, memory_types: Sequence[str]) -> dict[str, Any]:
    properties = {
        "content": {"type": "string", "description": "The memory, in your own words."},
        "memory_type": {"type": "string", "enum": list(memory_types)},
        "tags": {
            "type": "array",
            "items": {"type": "string", "enum": list(TAGS)},
            "description": "Often none.",
        },
    }
    return function_definition("save_memory", description, properties)


DEFINITION = saving_definition(
    "Keep something in your own memory. core: permanent, part of every prompt of yours. "
    "journal: shown to you for one week.",
    MEMORY_TYPES,
)


class SavingTool:
    """Shared by the tools named ``save_memory``; ``_save`` says where they save."""

    _save: Callable[[object, object, object], tuple[AgentMemory, bool]]

    def execute(
        self,
        /,
        content: object = None,
        memory_type: object = None,
        tags: object = None,
        **unknown: Any,
    ) -> Result:
        """Save and commit; ``existing`` marks an exact duplicate (``Ledger.select_core_with``)."""
        if unknown:
            allowed = DEFINITION["function"]["parameters"]["properties"]
            return error(unknown_parameter("save_memory", allowed))
        if content is None:
            return error("content is required")

        def save() -> Result:
            memory, existing = self._save(content, memory_type, [] if tags is None else tags)
            saved: Result = {"type": "saved", "id": memory.id, "memory_type": memory.memory_type}
            return {**saved, "existing": True} if existing else saved

        try:
            return self._in_one_call(save)
        except InvalidValue as fault:
            return error(str(fault))

    def _in_one_call(self, work: Callable[[], Result]) -> Result:
        return in_one_call(work)


class SaveMemoryTool(SavingTool):
    def __init__(self, agent: Agent) -> None:
        self._save = agent.ledger.remember
