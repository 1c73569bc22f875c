"""The lease with which the job of this thread claims its run: the worker's process made it.

So the worker knows, if that process is killed, which leases were its own.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

_of_thread = threading.local()


@contextmanager
def claiming_with(lease_token: uuid.UUID) -> Iterator[None]:
    """Have the job that this thread works on in the block claim its run with this lease."""
    _of_thread.lease_token = lease_token
    try:
        yield
    finally:
        _of_thread.lease_token = None


def own_lease() -> uuid.UUID | None:
    """Return the lease that was made for the job; None: the claim makes one."""
    return getattr(_of_thread, "lease_token", None)
