"""The queues: Redis carries only ids, and is never the source of truth."""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from ssl import SSLCertVerificationError
from typing import Any, NamedTuple

from redis import ConnectionPool, Redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError
from rq import Queue
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.queue import EnqueueData
from rq.serializers import JSONSerializer
from rq.utils import as_text

from refine import settings
from refine.access.asking import ASKING_SECONDS
from refine.errors import Refused, Unreachable
from refine.models import AccessGrant, MemoryTask, RefinementSession
from refine.models.runs import Run

# Workers serve them in this order: what somebody waits for comes first.
REQUESTED = "refine-asked"
AUTOMATIC = "refine-swept"
MEMORY_TASKS = "refine-memory"
TICKS = "refine-ticks"
QUEUES = (REQUESTED, AUTOMATIC, MEMORY_TASKS, TICKS)
RUN_QUEUES = (REQUESTED, AUTOMATIC, MEMORY_TASKS)

# RQ's own time limit comes after the run's, which ends it in order.
GRACE_SECONDS = 120
FAILURE_TTL_SECONDS = 3_600

# How long Redis may take for an answer.
PATIENCE_SECONDS = 5.0


class RunJob(NamedTuple):
    """The job that works on one kind of run."""

    function: str
    description: str


RUN_JOBS: dict[type[Run], RunJob] = {
    RefinementSession: RunJob("refine.jobs.runs.refine_session", "refinement session"),
    MemoryTask: RunJob("refine.jobs.runs.work_on_task", "memory task"),
    AccessGrant: RunJob("refine.jobs.runs.ask_for_access", "access request"),
}
TICK = "refine.jobs.tick.tick"
# Anybody who can write to Redis can run these, with any arguments, and nothing else.
JOBS = frozenset({TICK, *(job.function for job in RUN_JOBS.values())})


# The fields of a job of ours. Others name callbacks and webhooks, or repeat, retry or chain a job.
_FIELDS = frozenset(
    {
        *(b"data", b"description", b"origin", b"timeout", b"result_ttl", b"failure_ttl", b"ttl"),
        *(b"meta", b"status", b"created_at", b"enqueued_at", b"started_at", b"ended_at"),
        *(b"last_heartbeat", b"worker_name", b"enqueue_at_front"),
    }
)


class JsonJob(Job):
    """One of ``JOBS``, with a JSON payload and nothing more than ``_FIELDS``.

    A pickle, the name of any function or callback, or the address of a webhook would let whoever
    can write to Redis run code here.
    """

    has_unknown_fields = False

    def __init__(self, id: Any = None, connection: Any = None, serializer: Any = None) -> None:
        super().__init__(id, connection, JSONSerializer)

    def restore(self, raw_data: dict[bytes, bytes]) -> None:
        """Take over the known fields; a job that cannot be read counts as missing."""
        known = {name: value for name, value in raw_data.items() if name in _FIELDS}
        self.has_unknown_fields = any(raw_data[name] for name in raw_data.keys() - known.keys())
        try:
            super().restore(known)
        except Exception as fault:  # whatever RQ meets there: it must not end the worker
            raise NoSuchJobError(f"unreadable job ({type(fault).__name__})") from None
        # rq-scheduler would also import a class of any name that it finds here
        interval = self.meta.get("interval") if isinstance(self.meta, dict) else None
        self.meta = {"interval": interval} if isinstance(interval, int) else {}

    @property
    def func(self) -> Any:
        """The function that the payload names, if it is allowed."""
        if self.func_name not in JOBS:
            raise Refused(f"not a job of Refine: {self.func_name}")
        if self.has_unknown_fields or self.instance is not None:
            raise Refused("not a job of Refine: it has callbacks or other fields of its own")
        return super().func


@contextmanager
def redis_connection(
    *, is_kept: bool = True, patience_seconds: float = PATIENCE_SECONDS
) -> Iterator[Redis]:
    """Yield a connection, which stays open for the next one; Unreachable if Redis does not answer.

    One that is not kept belongs to its caller, who may wait on it without a limit.
    """
    url = settings.current().redis_url
    if is_kept:
        connection = Redis(connection_pool=_pool(url, patience_seconds))
    else:
        connection = Redis.from_url(url, socket_connect_timeout=PATIENCE_SECONDS)
    try:
        yield connection
    except (RedisError, OSError) as error:
        raise Unreachable(_trouble(error)) from None
    finally:
        connection.close()


def _trouble(error: BaseException) -> str:
    """Say what is wrong with Redis, without a word of the URL: it may hold a password."""
    if isinstance(error, OutOfMemoryError):
        return "Redis is full; give it more memory (maxmemory)"
    if isinstance(error, ReadOnlyError):
        return "Redis is a read-only replica; let REDIS_URL lead to its primary"
    cause = error
    while not isinstance(cause, OSError) and cause.__context__ is not None:
        cause = cause.__context__  # redis-py puts its own errors around those of the system
    if isinstance(cause, SSLCertVerificationError):
        reason = cause.verify_message.partition(",")[0]  # what follows quotes the host
        return (
            f"Redis's certificate is not trusted ({reason}); add ?ssl_ca_certs=/path to "
            "REDIS_URL, the file of who issued it, or ?ssl_cert_reqs=none to trust any certificate"
        )
    name = type(cause if isinstance(cause, OSError) else error).__name__
    return f"Redis does not answer at REDIS_URL; start it, or fix REDIS_URL ({name})"


@cache
def _pool(url: str, patience_seconds: float) -> ConnectionPool:
    """Return the connections of this process; a fork has its own."""
    limits = {"socket_connect_timeout": patience_seconds, "socket_timeout": patience_seconds}
    return ConnectionPool.from_url(url, **limits)


def queue(name: str, connection: Redis) -> Queue:
    """Return the queue of that name on that connection."""
    return Queue(name, connection=connection, serializer=JSONSerializer, job_class=JsonJob)


def waiting_ids(connection: Redis) -> list[uuid.UUID]:
    """Return the ids of the runs that Redis holds for the workers."""
    keys = [queue(name, connection).key for name in RUN_QUEUES]
    stored = [_id_of(id_) for key in keys for id_ in connection.lrange(key, 0, -1)]
    return [id_ for id_ in stored if id_ is not None]


# Anybody who can write to Redis can write anything: what cannot be read counts as missing.


def _id_of(stored: bytes | str) -> uuid.UUID | None:
    try:
        return uuid.UUID(as_text(stored))
    except ValueError:
        return None


Jobs = dict[str, list[EnqueueData]]


def jobs_of(runs: Iterable[Run]) -> Jobs:
    """Return the jobs of these runs by queue: only ids, which stay usable after the transaction."""
    jobs: Jobs = {}
    for run in runs:
        jobs.setdefault(_queue_name(run), []).append(_job_of(run))
    return jobs


def enqueue(jobs: Jobs, connection: Redis) -> None:
    """Push the jobs of committed runs to the workers, all at once.

    Enqueuing twice is harmless: the second job finds nothing to claim.
    """
    with connection.pipeline() as pipeline:
        for name, listed in jobs.items():
            queue(name, connection).enqueue_many(listed, pipeline=pipeline)
        pipeline.execute()


def _job_of(run: Run) -> EnqueueData:
    job = RUN_JOBS[type(run)]
    seconds = ASKING_SECONDS if isinstance(run, AccessGrant) else settings.current().max_seconds
    return Queue.prepare_data(
        job.function,
        args=(str(run.id),),
        job_id=str(run.id),
        description=f"{job.description} {run.id}",
        timeout=seconds + GRACE_SECONDS,
        result_ttl=0,
        failure_ttl=FAILURE_TTL_SECONDS,
    )


def _queue_name(run: Run) -> str:
    if isinstance(run, MemoryTask):
        return MEMORY_TASKS
    return AUTOMATIC if run.is_automatic else REQUESTED
