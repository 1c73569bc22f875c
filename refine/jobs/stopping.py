"""Whether this process was asked to end: looked at between the steps of a session."""

import signal
import threading
from types import FrameType

_asked = threading.Event()


def install(*asking: signal.Signals) -> None:
    """Have these signals ask instead of kill."""
    for number in asking:
        signal.signal(number, _ask)


def is_asked() -> bool:
    """Tell whether one of the signals arrived since ``install``."""
    return _asked.is_set()


def _ask(_number: int, _frame: FrameType | None) -> None:
    _asked.set()
