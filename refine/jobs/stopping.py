"""The request to stop this process; runs check it between their steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# A plain name: a lock, as in threading.Event, could be held by what the handler interrupts.
_stop_requested = False


@contextmanager
def handle_stop_signals(*signals: signal.Signals) -> Iterator[None]:
    global _stop_requested  # noqa: PLW0603 - one process has one answer
    before = {number: signal.signal(number, _request_stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _stop_requested = False


def stop_requested() -> bool:
    return _stop_requested


def _request_stop(_number: int, _frame: FrameType | None) -> None:
    global _stop_requested  # noqa: PLW0603
    _stop_requested = True
