"""What the model reads in a memory task: a conversation for each part, one entry per line.

    system      the agent's own system prompt
    user        the lines, as data; the rules; the agent's own prompt
    assistant   tool calls …, each answered by a tool message

Every entry or message is one line of JSON, so that it cannot pose as another line, a rule or a
role.
"""

from dataclasses import dataclass
from typing import Any

from refine import prompts
from refine.errors import InvalidValue
from refine.extensions import db
from refine.llm.messages import Message, user_message
from refine.llm.openrouter import MAX_OUTPUT_TOKENS
from refine.models import MemoryTask
from refine.models.runs.task import MAX_KEPT, saving
from refine.prompts import as_block, as_line
from refine.rules.splitting import packed
from refine.rules.tokens import CHARACTERS_PER_TOKEN_AT_WORST, half_of_room


@dataclass(frozen=True)
class Wording:
    """The template of a kind of task, and the agent's own prompt that goes into it."""

    template: str
    own_prompt: str


WORDINGS = {
    "reflection": Wording("reflection", "memory_reflection_prompt"),
    "extraction": Wording("extraction", "reflection_prompt"),
}


def lines_of(task: MemoryTask) -> list[str]:
    """Return the journal entries or messages that the task reads, each as one line of JSON."""
    if task.kind == "extraction":
        return [as_line(message) for message in task.messages()]
    return [
        as_line(entry.ledger_entry()) for entry in db.session.scalars(saving.journal_entries(task))
    ]


def parts_of(lines: list[str], task: MemoryTask, context_tokens: int) -> list[list[str]] | None:
    """Return the lines in parts that fit a context of this size; None if one line is too long."""
    wording = prompts.render(WORDINGS[task.kind].template, **_values(task, []))
    own_texts = [task.agent.effective_system_prompt, wording]
    room_tokens = half_of_room(context_tokens, MAX_OUTPUT_TOKENS, own_texts)
    try:
        return packed(lines, room_tokens * CHARACTERS_PER_TOKEN_AT_WORST)
    except InvalidValue:
        return None


def opening(task: MemoryTask, lines: list[str], part: int = 1, parts: int = 1) -> list[Message]:
    """Return the messages with which one part begins."""
    values = {**_values(task, lines), "part": part, "parts": parts}
    return [
        {"role": "system", "content": task.agent.effective_system_prompt},
        user_message(prompts.render(WORDINGS[task.kind].template, **values)),
    ]


def _values(task: MemoryTask, lines: list[str]) -> dict[str, Any]:
    style, _is_default = task.agent.effective(WORDINGS[task.kind].own_prompt)
    return {
        "lines": lines,
        "part": 1,
        "parts": 1,
        "max_kept": MAX_KEPT[task.kind],
        "style": as_block(style),
    }
