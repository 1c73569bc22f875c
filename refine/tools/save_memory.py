"""The tool ``save_memory``: an agent adds to its own memory."""

from collections.abc import Callable, Sequence
from typing import Any

from refine.models import Agent, AgentMemory
from refine.models.ledger.memory import MEMORY_TYPES
from refine.rules.content import TAGS
from refine.tools.calls import Result, Tool, function_definition


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


class SavingTool(Tool):
    """Shared by the tools named ``save_memory``; ``_save`` says where they save."""

    name, required, optional = "save_memory", ("content",), ("memory_type", "tags")
    _save: Callable[[object, object, object], tuple[AgentMemory, bool]]

    def execute(self, /, content: object = None, **params: Any) -> Result:
        """Save and commit; an ``error`` changes nothing."""
        return super().execute(content=content, **params)

    def _carry_out(
        self, content: object, memory_type: object = None, tags: object = None
    ) -> Result:
        """``existing`` marks an exact duplicate (``Ledger.select_core_with``)."""
        memory, existing = self._save(content, memory_type, [] if tags is None else tags)
        saved: Result = {"type": "saved", "id": memory.id, "memory_type": memory.memory_type}
        return {**saved, "existing": True} if existing else saved


class SaveMemoryTool(SavingTool):
    def __init__(self, agent: Agent) -> None:
        self._save = agent.ledger.remember
