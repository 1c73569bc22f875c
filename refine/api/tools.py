"""The tools that an agent's platform offers to its model, and their calls."""

from collections.abc import Callable

from flask import Response

from refine.api.problems import Problem
from refine.api.routing import Answer, given, operation
from refine.errors import InvalidValue
from refine.models import Agent
from refine.rules.tool_arguments import parse_arguments
from refine.tools import SaveMemoryTool, SelfAuthoringTool, save_memory, self_authoring

_TOOLS: dict[str, Callable[[Agent], SaveMemoryTool | SelfAuthoringTool]] = {
    "save_memory": SaveMemoryTool,
    "self_authoring": SelfAuthoringTool,
}


@operation(
    "GET",
    "/tools",
    bearer="agent",
    answers={200: Answer("The definitions.", "Tools")},
)
def tools(_agent: Agent) -> Response:
    """Function definitions, to be passed on as `tools` of a chat completion."""
    return given([save_memory.DEFINITION, self_authoring.DEFINITION])


@operation(
    "POST",
    "/tools/<name>/calls",
    bearer="agent",
    body="ToolArguments",
    is_raw=True,
    answers={
        200: Answer("What goes back to the model; an error of the tool, too.", "ToolResult"),
        404: Answer("There is no such tool."),
    },
)
def call(agent: Agent, name: str, body: str) -> Response:
    """Run a call that the model made.

    The body is `function.arguments` to the letter. It is read strictly and never repaired: what
    cannot be read, or may not be done, is answered with 200 and an error for the model to see.
    """
    if name not in _TOOLS:
        raise Problem(404, f"The tools are: {', '.join(_TOOLS)}.")
    try:
        arguments = parse_arguments(body)
    except InvalidValue as error:
        return given({"type": "error", "error": str(error)})
    return given(_TOOLS[name](agent).execute(**arguments))
