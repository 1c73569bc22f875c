"""The lease with which the job of this thread claims its run: the worker's process made it.

If that process is killed, the worker thus knows which leases were its own.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

_of_thread = threading.local()


@contextmanager
def claiming_with(lease_token: uuid.UUID) -> Iterator[None]:
    """Let the job of this thread claim its run with this lease, within the block."""
    _of_thread.lease_token = lease_token
    try:
        yield
    finally:
        _of_thread.lease_token = None


def own_lease() -> uuid.UUID | None:
    """Return the lease that was made for the job; None: the claim makes one."""
    return getattr(_of_thread, "lease_token", None)
