"""No core dumps: they would hold keys, passwords and decrypted content."""

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def forbid() -> None:
    """Forbid core dumps and, as a handler program ignores that limit, tracing on Linux."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
