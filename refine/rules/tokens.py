"""How a model's context is divided, by upper bounds; memories count by ``token_estimate``."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refine.errors import InvalidValue

MAX_OUTPUT_TOKENS = 8_192

# With less room for its memories, a session cannot work: not even two searches fit.
MIN_CONTENT_TOKENS = 500

# The output takes at most this share of a small context.
_OUTPUT_DIVISOR = 4
# Tokenizers split dense JSON and code more finely; any other script has one character a token.
_ASCII_CHARACTERS_PER_TOKEN = 3
# Hardly any text has more. Text that is repeated in a message counts at least this much.
_MOST_CHARACTERS_PER_TOKEN = 20
# What the templates of models write around each message: its role, its beginning and its end.
_TOKENS_AROUND_MESSAGE = 8


def tokens_at_most(text: str) -> int:
    """Return a token count that hardly any tokenizer exceeds, for what must fit a context."""
    ascii_characters = len(text.encode("ascii", "ignore"))
    return -(-ascii_characters // _ASCII_CHARACTERS_PER_TOKEN) + len(text) - ascii_characters


def request_tokens_at_most(messages: Iterable[Any], tools: Sequence[Any]) -> int:
    """Return a token count that hardly any request exceeds; a repeated text counts once."""
    of_messages = (_TOKENS_AROUND_MESSAGE + _message_tokens(message) for message in messages)
    of_tools = tokens_at_most(json.dumps(tools, ensure_ascii=False)) if tools else 0
    return sum(of_messages) + of_tools


def _message_tokens(message: Any) -> int:
    once = sum(map(tokens_at_most, set(_texts_in(message))))
    # a server may repeat a word a million times, or write numbers and names of fields
    return max(once, len(json.dumps(message)) // _MOST_CHARACTERS_PER_TOKEN)


def _texts_in(value: Any) -> Iterator[str]:
    left = [value]  # no recursion: a provider may nest its fields deeper than that goes
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            left += each.values()
        elif isinstance(each, list):
            left += each


@dataclass(frozen=True)
class Room:
    """A model's context, its room for one output, and the model's ``own_limit`` if listed."""

    context_tokens: int
    output_tokens: int
    own_limit: int | None = None

    @classmethod
    def of(cls, context_tokens: int, max_output_tokens: int | None = None) -> "Room":
        own_limit = MAX_OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens
        output_tokens = min(MAX_OUTPUT_TOKENS, context_tokens // _OUTPUT_DIVISOR, own_limit)
        return cls(context_tokens, max(1, output_tokens), max_output_tokens)

    def output(self, times: int = 1) -> int:
        limits = [times * self.output_tokens, self.context_tokens // 2]
        if self.own_limit is not None:
            limits.append(self.own_limit)
        return max(self.output_tokens, min(limits))

    def output_beside(self, request_tokens: int, times: int = 1) -> int | None:
        """Return the tokens of an output after such a request; None if the two do not fit."""
        left = self.context_tokens - request_tokens
        return min(self.output(times), left) if left >= self.output_tokens else None

    def for_result(self, request_tokens: int) -> int:
        """Return half of the tokens that the output and the conversation leave: for one result."""
        return max(0, self.context_tokens - self.output_tokens - request_tokens) // 2

    def for_content(self, texts: Iterable[str]) -> int:
        """Return half of the tokens that the output and these texts leave, for the turns."""
        taken = self.output_tokens + sum(map(tokens_at_most, texts))
        return max(0, self.context_tokens - taken) // 2


def last_that_fit(lines: Sequence[str], room_tokens: int) -> list[str]:
    fitting: list[str] = []
    for line in reversed(lines):
        if (tokens := tokens_at_most(line)) <= room_tokens:
            fitting.append(line)
            room_tokens -= tokens
    return fitting[::-1]


def packed(lines: Sequence[str], room_tokens: int) -> list[list[str]]:
    """Return the lines in as few parts as possible; InvalidValue if a single line does not fit."""
    parts: list[list[str]] = []
    left = 0
    for line in lines:
        tokens = tokens_at_most(line)
        if tokens > room_tokens:
            raise InvalidValue(f"a line takes {tokens:,} tokens; at most {room_tokens:,} fit")
        if not parts or tokens > left:
            parts.append([])
            left = room_tokens
        parts[-1].append(line)
        left -= tokens
    return parts
