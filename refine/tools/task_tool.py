"""What the tools of memory tasks share: the task that they write under, and its transaction."""

import uuid
from collections.abc import Callable

from refine.extensions import db
from refine.models import MemoryTask
from refine.outages import NO_RETRY, RetryPolicy
from refine.tools.results import Result
from refine.tools.transaction import in_one_call


class TaskTool:
    """A tool in one memory task, under the lease that the caller holds."""

    def __init__(
        self, task_id: uuid.UUID, lease_token: uuid.UUID, retry: RetryPolicy = NO_RETRY
    ) -> None:
        self._task_id = task_id
        self._lease_token = lease_token
        self._retry = retry
        self._kept_before = 0

    def _held(self) -> MemoryTask:
        """Return the locked task; LeaseLost if it is no longer the caller's."""
        task = MemoryTask.held(self._task_id, self._lease_token)
        self._kept_before = task.memories_kept
        return task

    def _in_one_call(self, work: Callable[[], Result]) -> Result:
        return in_one_call(work, self._retry, self._has_kept_more)

    def _has_kept_more(self) -> bool:
        task = db.session.get_one(MemoryTask, self._task_id)
        task.lock()
        return task.memories_kept > self._kept_before
