"""The tool ``save_memory``: an agent adds to its own memory."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from refine.errors import InvalidValue
from refine.models import Agent, AgentMemory
from refine.models.ledger import MEMORY_TYPES
from refine.rules.content import TAGS
from refine.tools.results import Result, error, unknown_parameter
from refine.tools.transaction import in_one_call


def definition(description: str, *, memory_types: Sequence[str]) -> dict[str, Any]:
    """Return the definition of a tool ``save_memory`` for these types of memories.

    All parameters are required, as OpenAI's strict mode demands; the tool does without the others.
    """
    properties: dict[str, Any] = {
        "content": {"type": "string", "description": "The memory, in your own words."},
        "memory_type": {"type": "string", "enum": list(memory_types)},
        "tags": {
            "type": "array",
            "items": {"type": "string", "enum": list(TAGS)},
            "description": "Often none.",
        },
    }
    return {
        "type": "function",
        "function": {
            "name": "save_memory",
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
        },
    }


DEFINITION = definition(
    "Keep something in your own memory. core: permanent, part of every prompt of yours. "
    "journal: shown to you for one week.",
    memory_types=MEMORY_TYPES,
)

_PARAMETERS = tuple(DEFINITION["function"]["parameters"]["properties"])


class SavingTool:
    """What the tools named ``save_memory`` share; each defines what it saves, and where."""

    def execute(
        self,
        /,
        content: object = None,
        memory_type: object = None,
        tags: object = None,
        **unknown: Any,
    ) -> Result:
        """Save one memory and commit; return ``saved`` with its id, or an ``error``.

        An exact duplicate is not saved again: the result names the memory that is there, with
        ``existing`` set (which memories count: ``Ledger.select_core_with``).
        """
        if unknown:
            return error(unknown_parameter("save_memory", _PARAMETERS))
        if content is None:
            return error("content is required")
        try:
            return self._in_one_call(
                lambda: self._saved(content, memory_type, [] if tags is None else tags)
            )
        except InvalidValue as fault:
            return error(str(fault))

    def _in_one_call(self, work: Callable[[], Result]) -> Result:
        return in_one_call(work)

    def _saved(self, content: object, memory_type: object, tags: object) -> Result:
        memory, existing = self._save(content, memory_type, tags)
        saved: Result = {"type": "saved", "id": memory.id, "memory_type": memory.memory_type}
        return {**saved, "existing": True} if existing else saved

    @abstractmethod
    def _save(self, content: object, memory_type: object, tags: object) -> tuple[AgentMemory, bool]:
        """Save the memory; return it, and whether it already existed. May raise InvalidValue."""


class SaveMemoryTool(SavingTool):
    """The tool for one agent; exact duplicates of kept core memories are not saved."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def _save(self, content: object, memory_type: object, tags: object) -> tuple[AgentMemory, bool]:
        return self._agent.ledger.remember(content, memory_type, tags)
