"""The memories that the agent sees in normal conversation."""

from hashlib import sha256

from flask import Response, request

from refine.api.problems import Problem
from refine.api.routing import JSON, ResponseSpec, json_response, operation
from refine.api.schemas import Resource
from refine.models import Agent

MARKDOWN = "text/markdown"


class Context(Resource):
    """The memory context, with its size."""

    context: str | None
    """Markdown for the agent's prompts; null if there are no memories."""
    core_tokens: int
    budget: int


@operation(
    "GET",
    "/context",
    bearer="agent",
    responses={
        200: ResponseSpec(
            "The context.", Context, headers=("ETag",), other_media_types=(MARKDOWN,)
        ),
        304: ResponseSpec("Not modified.", headers=("ETag",)),
        406: ResponseSpec("Only JSON and Markdown are available."),
    },
)
def context(agent: Agent) -> Response:
    """Return the memory context for the next prompt.

    It contains the core memories and the journal of the last week, as Markdown; with `Accept:
    text/markdown`, without JSON around it. Send the ETag as `If-None-Match` to get 304 if nothing
    has changed.
    """
    media_type = request.accept_mimetypes.best_match([JSON, MARKDOWN], default=JSON)
    if request.accept_mimetypes and not request.accept_mimetypes[media_type]:
        raise Problem(406, "Available media types: application/json and text/markdown.")
    markdown = agent.memory_context()
    if media_type == MARKDOWN:
        answer = Response(markdown or "", mimetype=MARKDOWN)
    else:
        tokens, budget = agent.core_token_usage, agent.core_token_budget
        answer = json_response(Context(context=markdown, core_tokens=tokens, budget=budget))
    answer.set_etag(sha256(media_type.encode() + b"\n" + answer.get_data()).hexdigest())
    answer.headers["Cache-Control"] = "private, no-cache"
    answer.vary.update(("Accept", "Authorization"))
    answer.make_conditional(request)
    return answer
