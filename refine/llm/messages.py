"""The parts of a conversation with a model."""

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Self

from refine.rules.prices import Price

# as sent over the wire; appended to a conversation and never altered
Message = dict[str, Any]


@dataclass(frozen=True)
class Privacy:
    """What a request carries besides its messages: opaque ids and the account's privacy terms."""

    session_id: str
    account_ref: str
    zero_data_retention: bool = True


@dataclass(frozen=True)
class Usage:
    """What one call took, as counted by the provider; ``cost_usd`` is None if it is not known.

    Most providers count ``reasoning_tokens`` as a part of ``completion_tokens``. Unless
    ``is_counted``, the tokens of the prompt or the completion are not known.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: Decimal | None = None
    reasoning_tokens: int = 0
    is_counted: bool = False

    def priced(self, price: Price) -> Self:
        """Return it with its cost: as the answer names it, else calculated from this price."""
        if self.cost_usd is not None:
            return self
        cost_usd = price.cost_usd(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
        )
        return replace(self, cost_usd=cost_usd)


@dataclass(frozen=True)
class ToolCall:
    """One call that a model wrote; ``problem`` says why it cannot be executed, or is None."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict, repr=False)
    problem: str | None = None


@dataclass(frozen=True)
class Reply:
    """One answer of a model.

    ``message`` goes into the conversation, unchanged except for arguments that no provider would
    accept back; ``is_cut`` means that a limit or a filter ended the answer before its end.
    ``model`` is the name that it bears: None if it has none, empty if that cannot be read.
    """

    message: Message = field(repr=False)
    text: str | None = field(repr=False)
    tool_calls: tuple[ToolCall, ...] = field(repr=False)
    model: str | None
    is_cut: bool
    usage: Usage
    generation_id: str | None = None


def user_message(text: str) -> Message:
    return {"role": "user", "content": text}


def tool_message(call: ToolCall, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": text}
