"""No core dumps: they would hold keys, passwords and decrypted content."""

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def forbid() -> None:
    """Forbid this process and its children to dump core.

    On Linux, the limit does not stop a core handler that is a program (``core_pattern``), so the
    process is marked as not dumpable too, as are the processes that it forks. Other processes of
    the same OS user can then neither trace it nor read its memory or environment.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
