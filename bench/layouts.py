"""What a session's requests come to: as they were sent, and as they could have been laid out.

Tokens are estimated from the text that a model reads: the tools first, as providers put them, then
the role and the text of each message.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, NamedTuple

from refine.llm.messages import Message, user_message
from refine.rules.tokens import CHARACTERS_PER_TOKEN, token_estimate

# The question follows the ledger in one message, under a heading of its own. No memory can forge
# one, because none holds a line break there.
_HEADING = "\n\n# "


class Exchange(NamedTuple):
    """A request's body, and the message that came back."""

    request: dict[str, Any]
    reply: Message


@dataclass(frozen=True)
class Bill:
    """What the requests of one session come to.

    ``unchanged_tokens`` are those at the start of a request that an earlier one began with, word
    for word: what a prefix cache can serve. ``after_consent``: of all requests but the first.
    """

    requests: int
    prompt_tokens: int
    completion_tokens: int
    unchanged_tokens: int
    prompt_tokens_after_consent: int

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> "Bill":
        """Return the bill of these exchanges; the first one asks for consent."""
        texts = [written(each.request) for each in exchanges]
        prompts = [token_estimate(text) for text in texts]
        return cls(
            requests=len(exchanges),
            prompt_tokens=sum(prompts),
            completion_tokens=sum(token_estimate(_said(each.reply)) for each in exchanges),
            unchanged_tokens=sum(_unchanged(texts)),
            prompt_tokens_after_consent=sum(prompts[1:]),
        )

    @property
    def new_tokens(self) -> int:
        """The prompt tokens that no cache can serve."""
        return self.prompt_tokens - self.unchanged_tokens

    @property
    def unchanged_share(self) -> float:
        """The share of all prompt tokens that a prefix cache can serve."""
        return self.unchanged_tokens / self.prompt_tokens

    @property
    def unchanged_share_after_consent(self) -> float:
        """The same for the requests after consent; nothing comes before the first request."""
        return self.unchanged_tokens / self.prompt_tokens_after_consent


def replayed(
    exchanges: Sequence[Exchange], *, fresh_prompt: bool, one_call: bool
) -> list[Exchange]:
    """Return a recorded session as another layout would have sent it: same calls, same results.

    ``fresh_prompt``: consent is asked without tools, and then the session starts with a fresh
    prompt: system prompt, ledger, brief. ``one_call``: each reply makes one call only.
    """
    consent, *turns = exchanges
    tools, messages = turns[0].request["tools"], turns[0].request["messages"]
    if fresh_prompt:
        consent = Exchange({"messages": consent.request["messages"]}, consent.reply)
        messages = _fresh(messages)
    laid_out = [consent]
    for reply, results in _turns(turns, one_call=one_call):
        laid_out.append(Exchange({"tools": tools, "messages": messages}, reply))
        messages = [*messages, reply, *results]
    return laid_out


def ledger_share_after_consent(exchanges: Sequence[Exchange]) -> float:
    """Return the share of the prompts after consent that stands before the end of the ledger.

    Providers that are told by one mark where the stable part ends serve this much.
    """
    consent, *turns = exchanges
    system, opening, *_ = consent.request["messages"]
    shown = user_message(_ledger(opening))
    stable = written({**consent.request, "messages": [system, shown]})
    prompts = (token_estimate(written(turn.request)) for turn in turns)
    return token_estimate(stable) * len(turns) / sum(prompts)


def written(request: dict[str, Any]) -> str:
    """Return the text of a request: the tools, then each message."""
    tools = [_as_json(tool) for tool in request.get("tools", ())]
    return "\n".join([*tools, *map(_said, request["messages"])])


def _said(message: Message) -> str:
    calls = (call["function"] for call in message.get("tool_calls") or ())
    called = [f"{call['name']} {call['arguments']}" for call in calls]
    return "\n".join([message["role"], message["content"] or "", *called])


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unchanged(texts: Sequence[str]) -> Iterator[int]:
    for position, text in enumerate(texts):
        shared = (len(commonprefix([text, earlier])) for earlier in texts[:position])
        yield max(shared, default=0) // CHARACTERS_PER_TOKEN


def _fresh(messages: Sequence[Message]) -> list[Message]:
    system, opening, _answer, brief = messages
    return [system, user_message(f"{_ledger(opening)}\n\n{brief['content']}")]


def _ledger(opening: Message) -> str:
    ledger, _, _question = str(opening["content"]).rpartition(_HEADING)
    return ledger


def _turns(turns: Sequence[Exchange], *, one_call: bool) -> Iterator[tuple[Message, list[Message]]]:
    """Yield each reply with the messages that answered it; nothing answers the last."""
    later = [turn.request["messages"] for turn in turns[1:]]
    for (request, reply), messages in zip(turns, [*later, []], strict=True):
        results = messages[len(request["messages"]) + 1 :]
        yield from _apart(reply, results) if one_call else [(reply, results)]


def _apart(reply: Message, results: list[Message]) -> Iterator[tuple[Message, list[Message]]]:
    for call in reply["tool_calls"]:
        answers = [each for each in results if each["tool_call_id"] == call["id"]]
        yield {**reply, "tool_calls": [call]}, answers
