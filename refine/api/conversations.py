"""Finished conversations, from which the agent's model saves memories."""

import uuid
from typing import Annotated, Any, Literal

from pydantic import Field

from refine import clock
from refine.api.problems import Problem
from refine.api.routing import operation
from refine.api.rows import agent_row_or_404
from refine.api.schemas import Body, Resource, Time
from refine.jobs.queue import extract_later
from refine.models import Agent, MemoryTask
from refine.rules.conversation import IGNORED, MAX_CONVERSATION_CHARACTERS, MAX_MESSAGES, ROLES

# At most four bytes per character, and the same again for the JSON around them.
_MAX_BYTES = 8 * MAX_CONVERSATION_CHARACTERS


class NewConversation(Body):
    """A finished conversation."""

    messages: Annotated[
        list[dict[str, Any]],
        Field(
            min_length=1,
            max_length=MAX_MESSAGES,
            examples=[[{"role": "user", "content": "What was said."}]],
            description=f"At most {MAX_CONVERSATION_CHARACTERS:,} characters, in order, with tool "
            f"messages. Each has a `role` ({', '.join(ROLES)}), `content` (text, or a list of "
            "parts, of which those of type `text` are read), and maybe a `name` and a time `at` "
            "(ISO 8601, or Unix time in any unit). At least one must contain text. These fields "
            f"are ignored: {', '.join(IGNORED)}.",
        ),
    ]


Status = Literal["queued", "running", "waiting", "done", "given_up"]


class Conversation(Resource):
    """A conversation that was handed over."""

    id: uuid.UUID
    status: Status
    """`waiting`: for the next attempt at `next_attempt_at`. `done`: the agent has read it.
    `given_up`: it could not be read, or not to its end, and is deleted."""
    reason: str | None
    """Why it waits or was given up: a kind of error, such as `no_key` or `timeout`. `limit`: its
    model needed more turns, calls or words than it has. `unavailable`: its agent may not be asked.
    `lapsed`: no attempt was made in seven days."""
    memories_saved: int
    created_at: Time
    next_attempt_at: Time | None
    ended_at: Time | None


@operation("POST", "/conversations", bearer="agent", max_bytes=_MAX_BYTES, status=202)
def send_conversation(agent: Agent, body: NewConversation) -> Conversation:
    """Send a finished conversation, from which the agent's model saves journal memories.

    It is encrypted, and deleted once the agent has read it. If it cannot be read, it is tried again
    for seven days.
    """
    return _conversation(extract_later(agent, body.messages))


@operation("GET", "/conversations/<uuid:conversation_id>", bearer="agent")
def get_conversation(agent: Agent, conversation_id: uuid.UUID) -> Conversation:
    """Return the status of a conversation, never its messages."""
    task = agent_row_or_404(agent, MemoryTask, conversation_id, "conversation")
    if task.kind != "extraction":
        raise Problem(404, "You have no such conversation.")
    return _conversation(task)


def _conversation(task: MemoryTask) -> Conversation:
    status = _status(task)
    reason = task.error_kind or ("limit" if task.end_reason else "unavailable")
    return Conversation.of(
        task,
        status=status,
        reason=reason if status in ("waiting", "given_up") else None,
        memories_saved=task.memories_kept,
        next_attempt_at=task.due_at if status == "waiting" else None,
    )


def _status(task: MemoryTask) -> Status:
    if task.is_held:
        return "running"
    if task.is_live:
        return "waiting" if task.due_at > clock.now() else "queued"
    return "done" if task.status == "completed" else "given_up"
