"""Asking for consent, and asking back once if the answer is unclear."""

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
    """Return the reply and whether it consents, and add both to ``messages``. An unclear reply is
    asked back once; ProviderError ``no_answer`` if that is unclear, too, which is no NO.
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
    return answer_in(reply.text, is_cut=reply.is_cut, is_call=bool(reply.tool_calls))


def not_open(reply: Reply, answer: Answer = Answer.CALL) -> list[Message]:
    """Return results for calls before the consent, or beside a NO."""
    result = prompts.as_line(error(asking_back(answer)))
    return [tool_message(call, result) for call in reply.tool_calls]


def asking_back(answer: Answer) -> str:
    return prompts.render("asked_back", unclear=answer.value)


def _asked_back(reply: Reply, answer: Answer) -> list[Message]:
    if answer is Answer.CALL:  # some servers refuse a user's message after a tool's result
        return [reply.message, *not_open(reply)]
    said = _NO_ANSWER if answer in (Answer.CUT, Answer.NO_WORDS) else reply.message
    return [said, user_message(asking_back(answer))]
