"""The job that works on a memory task, and the ways to ask for one."""

import uuid

from refine import settings
from refine.extensions import db
from refine.jobs import stopping
from refine.jobs.dispatch import make_room
from refine.models import Agent, MemoryTask
from refine.remembering.running import remember


class TaskFault(Exception):
    """A fault in Refine ended a task; the message carries its id and the fault's class alone."""


def work_on_task(task_id: str) -> None:
    """Work on the queued task of this id; quietly nothing where it is not queued any more."""
    try:
        remember(uuid.UUID(task_id), settings.current(), is_stopping=stopping.is_asked)
    except Exception as fault:
        # RQ keeps tracebacks in Redis, and a message may quote what it should not
        raise TaskFault(f"task {task_id}: {type(fault).__name__}") from None
    finally:
        make_room()


def extract_later(agent: Agent, conversation: object) -> MemoryTask:
    """Keep a finished conversation, sealed, commit, and hand its extraction to a worker.

    ``conversation``: a list of messages (role, content, and name or at where known). Raises
    InvalidValue, Refused or TooMany with nothing kept. Where Redis is away, the tick hands it over.
    """
    task = MemoryTask.extract(agent, conversation)
    db.session.commit()
    make_room()
    return task
