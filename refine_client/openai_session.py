"""OpenAI Agents SDK's session with Refine behind it. Needs the package ``openai-agents``.

    session = RefineSession("talk-1", Refine())
    await Runner.run(agent, "Hello", session=session)
    await session.finish()

The conversation is kept in this process; when it is finished, Refine reads it for what is worth
keeping.
"""

import asyncio
from typing import Any

from agents.items import TResponseInputItem
from agents.memory import SessionABC, SessionSettings

from refine_client.client import Refine, Row

_ROLES = ("user", "assistant")


class RefineSession(SessionABC):
    """A conversation; ``finish`` hands it over, and empties it."""

    session_settings: SessionSettings | None = None

    def __init__(self, session_id: str, refine: Refine) -> None:
        self.session_id = session_id
        self._refine = refine
        self._items: list[TResponseInputItem] = []

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the last items, oldest first."""
        left_out = 0 if limit is None else max(0, len(self._items) - limit)
        return self._items[left_out:]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end."""
        self._items += items

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the last item."""
        return self._items.pop() if self._items else None

    async def clear_session(self) -> None:
        """Drop the conversation, without handing it over."""
        self._items.clear()

    async def finish(self) -> Row | None:
        """Hand the conversation over; RefineError if it is refused, and then it is kept."""
        messages = [said for item in self._items if (said := _message(item)) is not None]
        if not messages:
            return None
        handed_over = await asyncio.to_thread(self._refine.hand_over, messages)
        self._items.clear()
        return handed_over


def _message(item: Any) -> Row | None:
    """Return what a person or the agent said in an item; None for all else."""
    if not isinstance(item, dict) or item.get("role") not in _ROLES:
        return None
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    text = "\n".join(each for each in texts if isinstance(each, str))
    return {"role": item["role"], "content": text} if text.strip() else None
