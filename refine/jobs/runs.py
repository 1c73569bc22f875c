"""The jobs that work on runs, and the functions that queue a run and dispatch it."""

import math
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from rq import get_current_job
from rq.timeouts import JobTimeoutException

from refine import settings
from refine.access import asking
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.dispatch import dispatch_if_possible
from refine.jobs.own_lease import own_lease
from refine.models import AccessGrant, Agent, MemoryTask, RefinementSession, User, schema_version
from refine.models.runs.access import AccessTerms
from refine.models.runs.session import Trigger
from refine.refinement.loop import refine
from refine.remembering.task_worker import run_task

AnyRun = TypeVar("AnyRun", RefinementSession, MemoryTask, AccessGrant)


class RunFault(Exception):
    """A fault in Refine ended a run; the message holds only its id and the fault's class."""


def refine_session(session_id: str) -> None:
    """Run the queued session of this id."""
    _work_on(refine, session_id)


def work_on_task(task_id: str) -> None:
    """Work on the queued memory task of this id."""
    _work_on(run_task, task_id)


def ask_for_access(grant_id: str) -> None:
    """Ask the agent of the waiting request of this id."""
    _work_on(asking.run_access_request, grant_id)


def _work_on(work: Callable[..., object], run_id: str) -> None:
    """Work on a run; do nothing if it cannot be claimed. Then make room for the next.

    A run that meets a database of another version stays queued: the clock dispatches it again.
    """
    if schema_version.must_wait():
        return
    try:
        work(
            uuid.UUID(run_id),
            settings.current(),
            is_stopping=_stop_check(),
            lease_token=own_lease(),
        )
    except Exception as fault:
        # RQ keeps tracebacks in Redis, and a message may quote what it should not
        raise RunFault(f"run {run_id}: {type(fault).__name__}") from None
    finally:
        dispatch_if_possible()


def _stop_check() -> Callable[[], bool]:
    """Return the check whether the process was asked to stop, which runs make at every step.

    It raises JobTimeoutException once the job's time is up: RQ's own way to do that, a signal,
    works in a process's main thread only.
    """
    job = get_current_job()
    limit = float(job.timeout or 0) if job is not None else 0
    deadline = time.monotonic() + limit if limit > 0 else math.inf

    def is_stopping() -> bool:
        if time.monotonic() >= deadline:
            raise JobTimeoutException
        return stopping.stop_requested()

    return is_stopping


def refine_later(agent: Agent, trigger: Trigger, **fields: Any) -> RefinementSession:
    """Queue a session for the agent, commit, and hand it to a worker.

    Raises SessionAlreadyLive. If it cannot be handed over yet, it waits: ``dispatched_at`` is None,
    and the clock hands it over later.
    """
    return _handed_over(RefinementSession.queue(agent, trigger, **fields))


def extract_later(agent: Agent, conversation: object) -> MemoryTask:
    """Store a finished conversation, sealed, commit, and hand its extraction to a worker.

    ``conversation``: messages as in ``rules.conversation``. Raises InvalidValue, Refused or TooMany
    with nothing stored.
    """
    return _handed_over(MemoryTask.extract(agent, conversation))


def request_access_later(agent: Agent, user: User, terms: AccessTerms) -> AccessGrant:
    """Add the user's request, commit, and have a worker ask the agent.

    Raises Refused, and AccessAlreadyRequested if there is one.
    """
    return _handed_over(AccessGrant.request(agent, user, terms))


def _handed_over(run: AnyRun) -> AnyRun:
    """Commit the waiting run and dispatch it, if possible; return it."""
    db.session.commit()
    dispatch_if_possible()
    return run
