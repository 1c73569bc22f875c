"""The tools that a platform offers to an agent's model, and calls of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, RootModel

from refine.api.problems import Problem
from refine.api.routing import operation
from refine.errors import InvalidValue
from refine.models import Agent
from refine.rules.received_json import parse_arguments
from refine.tools import (
    OwnMemoriesTool,
    SaveMemoryTool,
    SelfAuthoringTool,
    own_memories,
    save_memory,
    self_authoring,
)
from refine.tools.calls import error

_DEFINITIONS = [save_memory.DEFINITION, *own_memories.DEFINITIONS, self_authoring.DEFINITION]
_TOOLS: dict[str, Callable[[Agent], SaveMemoryTool | OwnMemoriesTool | SelfAuthoringTool]] = {
    "save_memory": SaveMemoryTool,
    **{
        name: partial(OwnMemoriesTool, name)
        for name in ("search_memories", "correct_memory", "forget_memory")
    },
    "self_authoring": SelfAuthoringTool,
}


class Tools(RootModel[list[dict[str, Any]]]):
    """Function definitions for chat completions."""


class ToolArguments(BaseModel):
    """The arguments exactly as the model wrote them.

    Invalid arguments get a tool error, which the model should see.
    """

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"action": "view", "field": "name"}]}
    )


class ToolResult(BaseModel):
    """The result to pass back to the model; `type` is `error` if the call was refused."""

    model_config = ConfigDict(extra="allow")

    type: str


@operation("GET", "/tools", bearer="agent")
def list_tools(_agent: Agent) -> Tools:
    """List the function definitions to pass as `tools` of a chat completion."""
    return Tools(_DEFINITIONS)


@operation("POST", "/tools/<name>/calls", bearer="agent", body=ToolArguments)
def call_tool(agent: Agent, name: str, body: str) -> ToolResult:
    """Run a tool call of the model.

    The body is `function.arguments` exactly as the model wrote it. It is parsed strictly and never
    repaired: an invalid or refused call gets a 200 with an error for the model.
    """
    if name not in _TOOLS:
        raise Problem(404, f"The tools are: {', '.join(_TOOLS)}.")
    try:
        arguments = parse_arguments(body)
    except InvalidValue as refusal:
        return ToolResult(**error(str(refusal)))
    return ToolResult(**_TOOLS[name](agent).execute(**arguments))
