"""How an agent is asked for its consent, and asked back once if its answer is unclear."""

from collections.abc import Callable

from refine import prompts
from refine.errors import ProviderError
from refine.llm.messages import Message, Reply, tool_message, user_message
from refine.rules.consent import Answer, answer_in
from refine.tools.calls import error

# Asks the model for its next message: with how many times the usual output limit, and whether it
# may only answer in words.
Ask = Callable[[int, bool], Reply]

# Stands for a reply that is cut off or has no words: servers refuse parts of messages, and empty
# ones.
_NO_ANSWER: Message = {"role": "assistant", "content": "(no answer)"}


def answer_to_question(ask: Ask, messages: list[Message]) -> tuple[Reply, bool]:
    """Return the agent's reply and whether it consents; ``messages`` end with the question.

    Adds what is said to ``messages``. An unclear reply is asked back once, with room for twice the
    output; after a tool call the model may not call then. (Formats of llama-cpp-python let it do
    nothing else as long as it may.) ProviderError, of the kind ``no_answer``, if the second reply
    is unclear, too: that does not count as a no.
    """
    reply = ask(1, False)
    if (answer := answer_of(reply)) not in (Answer.YES, Answer.NO):
        messages += _asked_back(reply, answer)
        reply = ask(2, answer is Answer.CALL)
        answer = answer_of(reply)
    if answer not in (Answer.YES, Answer.NO):
        message = f"the consent question got no answer, even when asked again: {answer.value}"
        raise ProviderError(message, kind="no_answer")
    messages.append(reply.message)
    return reply, answer is Answer.YES


def answer_of(reply: Reply) -> Answer:
    """Return what a reply says, or why it is not an answer."""
    return answer_in(reply.text, is_cut=reply.is_cut, is_call=bool(reply.tool_calls))


def not_open(reply: Reply, answer: Answer = Answer.CALL) -> list[Message]:
    """Return the results of calls that came before the consent, or beside a NO."""
    result = prompts.as_line(error(asking_back(answer)))
    return [tool_message(call, result) for call in reply.tool_calls]


def asking_back(answer: Answer) -> str:
    """Return what the agent is told about a reply that is not an answer."""
    return prompts.render("asked_back", unclear=answer.value)


def _asked_back(reply: Reply, answer: Answer) -> list[Message]:
    if answer is Answer.CALL:  # some servers refuse a user's message after a tool's result
        return [reply.message, *not_open(reply)]
    said = _NO_ANSWER if answer in (Answer.CUT, Answer.NO_WORDS) else reply.message
    return [said, user_message(asking_back(answer))]
