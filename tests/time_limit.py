"""A limit of time for each test: one that hangs fails, and the others go on.

Far above what any test takes on a busy machine: the limit ends what would wait for ever.
"""

import faulthandler
import signal
import sys
from collections.abc import Generator
from types import FrameType

import pytest

QUICK_SECONDS = 300
SLOW_SECONDS = 900
# A test that survives its failure, or waits where Python runs no handlers, takes its process along.
GRACE_SECONDS = 60


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fail the test, its fixtures included, if it takes longer; show where every thread stands.

    RQ's own timeouts use the same signal and clear it: the second limit stays then.
    """
    limit = SLOW_SECONDS if item.get_closest_marker("slow") else QUICK_SECONDS

    def end(_number: int, _frame: FrameType | None) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__)
        pytest.fail(f"no end after {limit} seconds, the time limit of tests/time_limit.py")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(limit)
    faulthandler.dump_traceback_later(limit + GRACE_SECONDS, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
