"""Finished conversations, from which the agent's model saves memories."""

import uuid
from typing import Annotated, Any

from flask import Response
from pydantic import Field, WithJsonSchema

from refine.api.routing import ResponseSpec, json_response, operation
from refine.api.schemas import Body, Omittable, OneOf, Resource, Time
from refine.jobs.runs import extract_later
from refine.models import Agent
from refine.models.runs.run import LIVE
from refine.models.runs.task.task import ENDED
from refine.rules.conversation import MAX_CONVERSATION_CHARACTERS, MAX_MESSAGES, ROLES

# At most four bytes per character, and the same again for the JSON around them.
_MAX_BYTES = 8 * MAX_CONVERSATION_CHARACTERS

Ignored = Annotated[Any, Omittable, Field(description="Accepted and ignored.")]


class Message(Body):
    """A message as in chat completions. ``rules.conversation`` checks contents and times."""

    role: Annotated[str, OneOf(ROLES)]
    content: Annotated[
        Any,
        Omittable,
        WithJsonSchema(
            {
                "type": ["string", "array", "null"],
                "items": {
                    "type": "object",
                    "properties": {"type": {"type": "string"}},
                    "required": ["type"],
                },
                "examples": ["What was said."],
                "description": "Text, or a list of parts; only parts of type `text` are read. A "
                "message without text is ignored.",
            }
        ),
    ]
    name: Annotated[str | None, Omittable]
    at: Annotated[Any, Omittable, WithJsonSchema({"type": ["string", "number", "null"]})]
    """The time: ISO 8601, or Unix time in any unit."""
    tool_calls: Ignored
    tool_call_id: Ignored
    function_call: Ignored
    refusal: Ignored
    annotations: Ignored
    audio: Ignored
    reasoning: Ignored
    reasoning_details: Ignored
    reasoning_content: Ignored


class NewConversation(Body):
    """A finished conversation."""

    messages: Annotated[
        list[Message],
        Field(
            min_length=1,
            max_length=MAX_MESSAGES,
            examples=[[{"role": "user", "content": "What was said."}]],
            description="In order, including tool messages; at least one must contain text. 1 to "
            f"{MAX_MESSAGES:,} messages, at most {MAX_CONVERSATION_CHARACTERS:,} characters.",
        ),
    ]


class Extraction(Resource):
    """A queued extraction."""

    id: uuid.UUID
    status: Annotated[str, OneOf((*LIVE, *ENDED))]
    created_at: Time


@operation(
    "POST",
    "/conversations",
    bearer="agent",
    max_bytes=_MAX_BYTES,
    responses={
        202: ResponseSpec(
            "Queued. The conversation is encrypted, and deleted once the agent has read it.",
            Extraction,
        ),
        409: ResponseSpec("Extraction is not possible for this agent."),
    },
)
def hand_over(agent: Agent, body: NewConversation) -> Response:
    """Send a finished conversation, from which the agent's model saves journal memories."""
    messages = body.model_dump(exclude_unset=True)["messages"]
    return json_response(Extraction.of(extract_later(agent, messages)), 202)
