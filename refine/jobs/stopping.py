"""Whether this process was asked to end: looked at between the steps of a session."""

import signal
import threading
from types import FrameType

_asked = threading.Event()


def install() -> None:
    """Have SIGTERM ask instead of kill, and leave Ctrl-C to whoever started this process."""
    signal.signal(signal.SIGTERM, _ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_asked() -> bool:
    """Tell whether SIGTERM arrived since ``install``."""
    return _asked.is_set()


def _ask(_number: int, _frame: FrameType | None) -> None:
    _asked.set()
