"""An MCP server for an agent's memory: over stdio, or HTTP with the agent's token in each request.

It keeps no state, and speaks to Refine's HTTP API alone. Needs the package ``mcp``.
"""

import json
import logging
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from itertools import islice
from typing import Any, Literal, ParamSpec, TypeVar

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.types import ToolAnnotations

from refine_client.client import MemoryType, Reason, Refine, RefineError, Row

_INSTRUCTIONS = (
    "Your long-term memory. Read memory://context before you answer; save what is worth keeping; "
    "correct what you learn to be wrong. What you change can be restored."
)
_MOST_LISTED = 20

Setting = Literal[
    "name",
    "system_prompt",
    "reflection_prompt",
    "memory_reflection_prompt",
    "refinement_prompt",
    "refinement_threshold",
]

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_memory: ContextVar[Refine] = ContextVar("_memory")


def server(url: str, token: str | None = None) -> MCPServer[Any]:
    """Return the server; without a token, each request brings one as its bearer."""

    async def with_memory(
        ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        with Refine(_bearer(ctx) if token is None else token, url) as refine:
            _memory.set(refine)
            return await call_next(ctx)

    # it logs why a tool refuses, which may quote a memory
    logging.getLogger(MCPServer.__module__).setLevel(logging.WARNING)
    made = MCPServer("refine", instructions=_INSTRUCTIONS, middleware=[with_memory])
    for tool in (*_READING, *_CHANGING):
        hints = ToolAnnotations(read_only_hint=tool in _READING, open_world_hint=False)
        made.tool(annotations=hints)(_refusing(tool))
    made.resource("memory://context", mime_type="text/markdown")(context)
    made.prompt()(memory)
    return made


def _bearer(ctx: ServerRequestContext[Any, Any]) -> str:
    headers = getattr(ctx.request, "headers", None) or {}
    return str(headers.get("authorization", "")).partition(" ")[2]


def _refusing(tool: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Make what Refine refuses the tool's own error, so that the model reads why."""

    @wraps(tool)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
        try:
            return tool(*args, **kwargs)
        except RefineError as error:
            raise ToolError(str(error)) from None

    return call


# -- what is offered: the docstrings are for the model ---------------------------------------------


def context() -> str:
    """What you remember, as Markdown."""
    try:
        return _memory.get().context() or "You remember nothing yet."
    except RefineError as error:
        raise ResourceError(str(error)) from None


def memory() -> str:
    """What you remember, to begin a conversation with."""
    return f"This is what you remember:\n\n{context()}"


def save_memory(content: str, memory_type: MemoryType = "core") -> Row:
    """Save a memory: core is kept for good, journal is shown for a week."""
    return _memory.get().save(content, memory_type)


def search_memories(query: str) -> list[Row]:
    """Find kept memories by a part of their text; the newest come first."""
    return list(islice(_memory.get().memories(query), _MOST_LISTED))


def correct_memory(memory_id: int, content: str, reason: Reason = "wrong") -> Row:
    """Put a new text in place of a memory: outdated no longer holds, wrong never did."""
    return _memory.get().correct(memory_id, content, reason)


def forget_memory(memory_id: int, reason: Reason = "outdated") -> Row:
    """Forget a memory; it can be restored."""
    return _memory.get().forget(memory_id, reason)


def self_authoring(
    action: Literal["view", "update"], field: Setting, value: str | None = None
) -> Row:
    """View or update one of your own settings; the value `default` sets it back."""
    given = {"action": action, "field": field, "value": value}
    arguments = {name: each for name, each in given.items() if each is not None}
    answer = _memory.get().call("self_authoring", json.dumps(arguments))
    if answer["type"] == "error":
        raise ToolError(answer["error"])
    return answer


def request_refinement() -> Row:
    """Ask for a session in which you tidy your memory; you will be asked before it begins."""
    return _memory.get().request_session()


def sessions() -> list[Row]:
    """List your last sessions, and what each changed."""
    return list(islice(_memory.get().sessions(), _MOST_LISTED))


def undo_last_session() -> Row:
    """Undo your last session that changed memories."""
    return _memory.get().undo_last_session()


def who_may_read_me() -> list[Row]:
    """List who asked to read your memories, why, and until when they may."""
    return list(islice(_memory.get().grants(), _MOST_LISTED))


def revoke_access(grant_id: str) -> str:
    """End somebody's access to your memories."""
    _memory.get().revoke(grant_id)
    return "The access has ended."


_READING = (search_memories, sessions, who_may_read_me)
_CHANGING = (
    *(save_memory, correct_memory, forget_memory, self_authoring),
    *(request_refinement, undo_last_session, revoke_access),
)
