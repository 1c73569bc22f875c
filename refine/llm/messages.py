"""The parts of a conversation with a model."""

from dataclasses import dataclass, field
from typing import Any

from refine.errors import ProviderError
from refine.rules.prices import Usage

# as sent over the wire; appended to a conversation and never altered
Message = dict[str, Any]


@dataclass(frozen=True)
class Privacy:
    """What a request carries besides its messages: opaque ids and the account's privacy terms."""

    session_id: str
    account_ref: str
    zero_data_retention: bool = True


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


class CallFailed(ProviderError):
    """A call without a reply; ``usage``: as far as counted; None if it was not billed."""

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        is_transient: bool = True,
        usage: Usage | None = None,
        http_status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, kind=kind, http_status=http_status)
        self.is_transient = is_transient
        self.usage = usage
        self.retry_after_seconds = retry_after_seconds


def user_message(text: str) -> Message:
    return {"role": "user", "content": text}


def tool_message(call: ToolCall, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": text}
