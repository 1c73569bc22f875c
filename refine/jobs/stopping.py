"""Whether this process was asked to end: looked at between the steps of a session."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# A plain name: a lock, as in threading.Event, could be held by what the handler interrupts.
_asked = False


def install(*asking: signal.Signals) -> None:
    """Have these signals ask instead of kill."""
    for number in asking:
        signal.signal(number, _ask)


@contextmanager
def asked_by(*asking: signal.Signals) -> Iterator[None]:
    """Have these signals ask instead of kill, until the end of the block."""
    global _asked  # noqa: PLW0603 - there is one process, and one answer
    before = {number: signal.getsignal(number) for number in asking}
    install(*asking)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked = False


def is_asked() -> bool:
    """Tell whether one of the signals arrived since ``install``."""
    return _asked


def _ask(_number: int, _frame: FrameType | None) -> None:
    global _asked  # noqa: PLW0603
    _asked = True
