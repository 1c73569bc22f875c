"""An MCP server for an agent's memory: over stdio, or HTTP with the agent's token in each request.

It keeps no state, and speaks to Refine's HTTP API alone. Needs the package ``mcp``.
"""

import json
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from itertools import islice
from typing import Any, TypeVar

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError

from refine_client.client import MemoryType, Reason, Refine, RefineError

_INSTRUCTIONS = (
    "Your long-term memory. Read memory://context before you answer; save what is worth keeping; "
    "correct what you learn to be wrong. What you change can be restored."
)
_MOST_FOUND = 20

_Tool = TypeVar("_Tool", bound=Callable[..., Any])
_memory: ContextVar[Refine] = ContextVar("_memory")


def server(url: str | None = None, token: str | None = None) -> MCPServer[Any]:
    """Return the server; without a token, each request brings one as its bearer."""

    async def with_memory(
        context: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        headers = getattr(context.request, "headers", None) or {}
        _, _, secret = headers.get("authorization", "").partition(" ")
        _memory.set(Refine(token if token is not None else secret, url))
        return await call_next(context)

    made = MCPServer("refine", instructions=_INSTRUCTIONS, middleware=[with_memory])
    for tool in _TOOLS:
        made.tool()(tool)
    made.resource("memory://context", mime_type="text/markdown")(context)
    made.prompt()(memory)
    return made


def context() -> str:
    """What you remember, as Markdown."""
    try:
        return _memory.get().context() or "You remember nothing yet."
    except RefineError as error:
        raise ResourceError(str(error)) from None


def memory() -> str:
    """What you remember, to begin a conversation with."""
    return f"This is what you remember:\n\n{context()}"


def _tool(function: _Tool) -> _Tool:
    """What Refine refuses is the tool's own error, so that the model reads why."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RefineError as error:
            raise ToolError(str(error)) from None

    return call  # type: ignore[return-value]


@_tool
def save_memory(content: str, memory_type: MemoryType = "core") -> dict[str, Any]:
    """Save a memory: core is kept for good, journal is shown for a week."""
    return _memory.get().save(content, memory_type)


@_tool
def search_memories(query: str) -> list[dict[str, Any]]:
    """Find kept memories by a part of their text; the newest come first."""
    return list(islice(_memory.get().memories(query), _MOST_FOUND))


@_tool
def correct_memory(memory_id: int, content: str, reason: Reason = "wrong") -> dict[str, Any]:
    """Put a new text in place of a memory: outdated no longer holds, wrong never did."""
    return _memory.get().correct(memory_id, content, reason)


@_tool
def forget_memory(memory_id: int, reason: Reason = "outdated") -> dict[str, Any]:
    """Forget a memory; it can be restored."""
    return _memory.get().forget(memory_id, reason)


@_tool
def self_authoring(
    action: str, field: str | None = None, value: str | None = None
) -> dict[str, Any]:
    """Read or change your own prompts: action is view or update; GET /tools says more."""
    given = {"action": action, "field": field, "value": value}
    arguments = {name: each for name, each in given.items() if each is not None}
    return _memory.get().call("self_authoring", json.dumps(arguments))


@_tool
def request_refinement() -> dict[str, Any]:
    """Ask for a session in which you tidy your memory; you will be asked before it begins."""
    return _memory.get().request_session()


@_tool
def sessions() -> list[dict[str, Any]]:
    """List your last sessions, and what each changed."""
    return list(islice(_memory.get().sessions(), _MOST_FOUND))


@_tool
def undo_last_session() -> dict[str, Any]:
    """Undo your last session."""
    last = next(_memory.get().sessions(), None)
    if last is None:
        raise ToolError("There is no session to undo.")
    return _memory.get().undo(last["id"])


@_tool
def who_may_read_me() -> list[dict[str, Any]]:
    """List who asked to read your memories, why, and until when they may."""
    return list(islice(_memory.get().grants(), _MOST_FOUND))


@_tool
def revoke_access(grant_id: str) -> str:
    """End somebody's access to your memories."""
    _memory.get().revoke(grant_id)
    return "The access has ended."


_TOOLS = (
    *(save_memory, search_memories, correct_memory, forget_memory, self_authoring),
    *(request_refinement, sessions, undo_last_session, who_may_read_me, revoke_access),
)
