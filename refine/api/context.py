"""What the agent sees of its memory in normal conversation."""

from hashlib import sha256

from flask import Response, request

from refine.api.problems import Problem
from refine.api.routing import JSON, Answer, given, operation
from refine.models import Agent

MARKDOWN = "text/markdown"


@operation(
    "GET",
    "/context",
    bearer="agent",
    answers={
        200: Answer("The context.", "Context", headers=("ETag",), also=(MARKDOWN,)),
        304: Answer("It is as it was: the ETag of If-None-Match still holds.", headers=("ETag",)),
        406: Answer("Neither JSON nor Markdown will do."),
    },
)
def context(agent: Agent) -> Response:
    """The memory context for the next prompt.

    Kept core memories, and the journal of the last week, as Markdown: null where there are none.
    Accept: text/markdown gives the Markdown alone. Send the ETag as If-None-Match, and nothing is
    sent again that did not change.
    """
    wanted = request.accept_mimetypes.best_match([JSON, MARKDOWN], default=JSON)
    if request.accept_mimetypes and not request.accept_mimetypes[wanted]:
        raise Problem(406, "It can be had as application/json and text/markdown.")
    markdown = agent.memory_context()
    if wanted == MARKDOWN:
        answer = Response(markdown or "", mimetype=MARKDOWN)
    else:
        answer = given(
            {
                "context": markdown,
                "core_tokens": agent.core_token_usage,
                "budget": agent.core_token_budget,
            }
        )
    answer.set_etag(sha256(wanted.encode() + b"\n" + answer.get_data()).hexdigest())
    answer.headers["Cache-Control"] = "private, no-cache"
    answer.vary.update(("Accept", "Authorization"))
    answer.make_conditional(request)
    return answer
