"""What the model reads in a memory task: a conversation for each part, one entry per line.

    system      a line of the agent's own, and its system prompt
    user        the core memories and the lines, as data; the rules; the agent's own prompt
    assistant   tool calls …, each answered by a tool message

Every memory, entry or message is one line of JSON, so that it cannot pose as another line, a rule
or a role.
"""

from dataclasses import dataclass

from refine import clock, prompts
from refine.errors import InvalidValue
from refine.extensions import db
from refine.llm.messages import Message, user_message
from refine.models import MemoryTask
from refine.models.runs import saving
from refine.models.runs.task import MAX_KEPT
from refine.prompts import as_block, as_entry, as_line
from refine.rules.tokens import Room, last_that_fit, packed, tokens_at_most

# The agent's own prompt that goes into the template of a kind of task.
_OWN_PROMPTS = {"reflection": "memory_reflection_prompt", "extraction": "reflection_prompt"}


def lines_of(task: MemoryTask) -> list[str]:
    """Return unread journal entries or messages, each as one line of JSON."""
    if task.kind == "extraction":
        return [as_line(message) for message in task.messages()[-task.lines_unread :]]
    return [
        as_entry(entry.ledger_entry()) for entry in db.session.scalars(saving.journal_entries(task))
    ]


@dataclass(frozen=True)
class Layout:
    core: list[str]
    core_memories: int
    parts: list[list[str]]


def layout_of(lines: list[str], task: MemoryTask, room: Room) -> Layout | None:
    """Return how lines fit, core memories in at most half of the room; None if a line does not."""
    own_texts = [message["content"] for message in opening(task, Layout([], 0, [[]]))]
    room_tokens = room.for_content(own_texts)
    kept = db.session.scalars(task.agent.ledger.core())
    memories = [as_line(memory.dated_content()) for memory in kept]
    longest = max(map(tokens_at_most, lines), default=0)
    core = last_that_fit(memories, min(room_tokens // 2, room_tokens - longest))
    try:
        parts = packed(lines, room_tokens - sum(map(tokens_at_most, core)))
    except InvalidValue:
        return None
    return Layout(core, len(memories), parts)


def opening(task: MemoryTask, layout: Layout, part: int = 1) -> list[Message]:
    """Return the first messages of a part, counted from 1."""
    style, _is_default = task.agent.effective(_OWN_PROMPTS[task.kind])
    shown = prompts.render(
        task.kind,
        today=f"{clock.now():%Y-%m-%d}",
        core=layout.core,
        core_memories=layout.core_memories,
        core_tokens=task.agent.core_token_usage,
        budget_tokens=task.agent.core_token_budget,
        lines=layout.parts[part - 1],
        part=part,
        parts=len(layout.parts),
        max_kept=MAX_KEPT[task.kind],
        style=as_block(style),
    )
    return [{"role": "system", "content": task.agent.system_message}, user_message(shown)]
