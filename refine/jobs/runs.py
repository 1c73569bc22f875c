"""Working on a run in a worker, and asking for a run and announcing it to the workers."""

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from refine import settings
from refine.access import asking
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.queue import RUN_KINDS, Waiting, announce_soon
from refine.models import AccessGrant, Agent, MemoryTask, RefinementSession, User
from refine.models.runs import Run
from refine.models.runs.access import AccessTerms
from refine.models.runs.session import Trigger
from refine.refinement.loop import refine
from refine.remembering.task_worker import run_task

AnyRun = TypeVar("AnyRun", RefinementSession, MemoryTask, AccessGrant)

_WORK: dict[type[Run], Callable[..., object]] = {
    RefinementSession: refine,
    MemoryTask: run_task,
    AccessGrant: asking.run_access_request,
}


def work_on_run(run: Waiting, lease_token: uuid.UUID | None = None) -> None:
    """Claim the waiting run with this lease and work on it to its end, unless another has it."""
    _WORK[run.kind](
        run.id,
        settings.current(),
        is_stopping=stopping.stop_requested,
        lease_token=lease_token,
    )


def work_on(run_id: str) -> None:
    for kind in RUN_KINDS:
        run = db.session.get(kind, uuid.UUID(run_id))
        if run is not None:
            work_on_run(Waiting.of(run))
            return


def refine_later(agent: Agent, trigger: Trigger, **fields: Any) -> RefinementSession:
    """Queue a session for the agent, commit, and wake a worker; raises SessionAlreadyLive."""
    return _announced(RefinementSession.queue(agent, trigger, **fields))


def extract_later(agent: Agent, conversation: object) -> MemoryTask:
    """Store a finished conversation and wake a worker; or InvalidValue, Refused, TooMany."""
    return _announced(MemoryTask.extract(agent, conversation))


def request_access_later(agent: Agent, user: User, terms: AccessTerms) -> AccessGrant:
    """Add the user's request, commit and wake a worker; or Refused, AccessAlreadyRequested."""
    return _announced(AccessGrant.request(agent, user, terms))


def _announced(run: AnyRun) -> AnyRun:
    waiting = Waiting.of(run)
    db.session.commit()
    announce_soon(waiting)
    return run
