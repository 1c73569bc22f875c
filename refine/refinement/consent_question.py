"""What a model replies to the consent question, and when it is asked for again."""

from collections.abc import Callable

from refine.errors import ProviderError
from refine.llm.messages import Message, Reply, tool_message
from refine.prompts import as_line
from refine.rules.consent import has_words, refuses
from refine.tools.results import error

# The result of a tool call that comes before the agent's consent.
NOT_OPEN = error(
    "The session is not open yet, and nothing was done. Answer the question first, without a tool "
    "call: YES or NO as the first word"
)

# Asks the model for its next message: with how many times the usual output limit, and whether it
# may only answer in words.
Ask = Callable[[int, bool], Reply]


def answer_to_question(ask: Ask, messages: list[Message]) -> Reply:
    """Return the agent's answer, and add it to ``messages``, which end with the question.

    A tool call in place of an answer is asked back once, and then the model may not call. (Formats
    of llama-cpp-python let it do nothing else as long as it may.) ProviderError, of the kind
    ``no_answer``, if there is none: that does not count as a no.
    """
    reply = _reply_with_words(ask, messages)
    if _is_call(reply):
        messages += not_open(reply)
        reply = _reply_with_words(ask, messages, only_words=True)
    if _is_call(reply):
        raise _no_answer("the model called the tool instead")
    return reply


def not_open(reply: Reply) -> list[Message]:
    """Return the results of calls that came before the consent, or beside a NO."""
    return [tool_message(call, as_line(NOT_OPEN)) for call in reply.tool_calls]


def _reply_with_words(ask: Ask, messages: list[Message], *, only_words: bool = False) -> Reply:
    """Return what the model says or calls.

    If that is cut off or has no words, the question is repeated once, with room for twice the
    output. Such a reply is left out of the conversation, because servers refuse empty
    messages.
    """
    reply = ask(1, only_words)
    if _is_unusable(reply):
        reply = ask(2, only_words)
    if _is_unusable(reply):
        raise _no_answer("the reply was cut off or had no words")
    messages.append(reply.message)
    return reply


def _is_unusable(reply: Reply) -> bool:
    """Whether a reply is neither an answer nor a call: it is cut off, or has no words."""
    return reply.is_cut or not (reply.tool_calls or has_words(reply.text))


def _is_call(reply: Reply) -> bool:
    """Whether a reply calls the tool in place of an answer; a NO beside the call is an answer."""
    return bool(reply.tool_calls) and not refuses(reply.text)


def _no_answer(what_came: str) -> ProviderError:
    message = f"the consent question got no answer: {what_came}, twice"
    return ProviderError(message, kind="no_answer")
