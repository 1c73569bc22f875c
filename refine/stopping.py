"""The request to stop this process; runs check it between their steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# No lock, as in threading.Event: what the handler interrupts could hold it.
_received: list[int] = []


@contextmanager
def handle_stop_signals(*signals: signal.Signals) -> Iterator[list[int]]:
    """Yield a list to which these signals are added as they arrive; each requests the stop."""
    before = {number: signal.signal(number, _receive) for number in signals}
    try:
        yield _received
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _received.clear()


def stop_requested() -> bool:
    return bool(_received)


def _receive(number: int, _frame: FrameType | None) -> None:
    _received.append(number)
