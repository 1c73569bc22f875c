"""The queues: ids and nothing else go through Redis, and it is never the record."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue, Worker
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.utils import utcparse

from refine import clock, settings
from refine.access.asking import ASKING_SECONDS
from refine.errors import Refused, Unreachable
from refine.models import MemoryTask, RefinementSession
from refine.models.session import AUTOMATIC_TRIGGERS

# A worker looks into them in this order: what somebody waits for comes first.
ASKED = "refine-asked"
SWEPT = "refine-swept"
REMEMBERED = "refine-memory"
TICKS = "refine-ticks"
QUEUES = (ASKED, SWEPT, REMEMBERED, TICKS)

# RQ's own limit comes after the session's, which ends it in order.
GRACE_SECONDS = 120
FAILURE_TTL_SECONDS = 3_600

# A worker's heart beats in Redis at least every 45 seconds.
_WORKER_IS_GONE_AFTER = timedelta(seconds=60)

# Whoever can write to Redis can have these run, with arguments of their own, and nothing else.
REFINE_SESSION = "refine.jobs.sessions.refine_session"
ASK_FOR_ACCESS = "refine.jobs.access.ask_for_access"
WORK_ON_TASK = "refine.jobs.memory.work_on_task"
TICK = "refine.jobs.tick.tick"
JOBS = frozenset({REFINE_SESSION, ASK_FOR_ACCESS, WORK_ON_TASK, TICK})


class JsonJob(Job):
    """A job of ``JOBS`` whose payload is JSON: a pickle, or any function's name, runs any code."""

    def __init__(self, id: Any = None, connection: Any = None, serializer: Any = None) -> None:
        super().__init__(id, connection, serializer or JSONSerializer)

    @property
    def func(self) -> Any:
        """The function that the payload names, if it is one of ours."""
        if self.func_name not in JOBS:
            raise Refused(f"not a job of Refine: {self.func_name}")
        return super().func


@contextmanager
def redis_connection() -> Iterator[Redis]:
    """Yield a connection of its own; Unreachable where Redis does not answer."""
    connection = Redis.from_url(settings.current().redis_url, socket_connect_timeout=5)
    try:
        yield connection
    except (RedisError, OSError) as error:
        raise Unreachable(
            "Redis does not answer at REDIS_URL; start it, or mend the URL "
            f"({type(error).__name__})"
        ) from None
    finally:
        connection.close()


def queue(name: str, connection: Redis) -> Queue:
    """Return the queue of that name on that connection."""
    return Queue(name, connection=connection, serializer=JSONSerializer, job_class=JsonJob)


def live_workers(connection: Redis) -> int:
    """Return how many workers gave a sign of life of late: one that was killed is listed longer."""
    keys = Worker.all_keys(queue=queue(SWEPT, connection))
    with connection.pipeline() as pipeline:
        for key in keys:
            pipeline.hget(key, "last_heartbeat")
        beats = [utcparse(beat.decode()) for beat in pipeline.execute() if beat is not None]
    return sum(beat > clock.now() - _WORKER_IS_GONE_AFTER for beat in beats)


def enqueue(session: RefinementSession, connection: Redis) -> None:
    """Push the id of a committed session to the workers.

    Twice does no harm: the session is claimed once, and the second job finds it so.
    """
    name = SWEPT if session.trigger in AUTOMATIC_TRIGGERS else ASKED
    queue(name, connection).enqueue_call(
        REFINE_SESSION,
        args=(str(session.id),),
        job_id=str(session.id),
        description=f"refinement session {session.id}",
        timeout=settings.current().max_seconds + GRACE_SECONDS,
        result_ttl=0,
        failure_ttl=FAILURE_TTL_SECONDS,
    )


def enqueue_task(task: MemoryTask, connection: Redis) -> None:
    """Push the id of a committed memory task to the workers; twice does no harm either."""
    queue(REMEMBERED, connection).enqueue_call(
        WORK_ON_TASK,
        args=(str(task.id),),
        job_id=str(task.id),
        description=f"memory task {task.id}",
        timeout=settings.current().max_seconds + GRACE_SECONDS,
        result_ttl=0,
        failure_ttl=FAILURE_TTL_SECONDS,
    )


def enqueue_access(grant_id: uuid.UUID, connection: Redis) -> None:
    """Push the id of a committed request for access to the workers; twice does no harm either."""
    queue(ASKED, connection).enqueue_call(
        ASK_FOR_ACCESS,
        args=(str(grant_id),),
        job_id=str(grant_id),
        description=f"access request {grant_id}",
        timeout=ASKING_SECONDS + GRACE_SECONDS,
        result_ttl=0,
        failure_ttl=FAILURE_TTL_SECONDS,
    )
