"""The queue: ids and nothing else go through Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from rq import Queue
from rq.job import Job
from rq.serializers import JSONSerializer

from refine import clock, settings
from refine.errors import Refused, Unreachable
from refine.extensions import db
from refine.models import RefinementSession

QUEUE = "refine"

# RQ's own limit comes after the session's, which ends it in order.
GRACE_SECONDS = 120
FAILURE_TTL_SECONDS = 3_600


# Whoever can write to Redis can have these run, with arguments of their own, and nothing else.
REFINE_SESSION = "refine.jobs.sessions.refine_session"
JOBS = frozenset({REFINE_SESSION})


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


def queue(connection: Redis) -> Queue:
    """Return the queue on that connection."""
    return Queue(QUEUE, connection=connection, serializer=JSONSerializer, job_class=JsonJob)


def enqueue(session: RefinementSession) -> None:
    """Hand a committed, queued session to a worker, and commit that it was handed over.

    Raises Unreachable where Redis is away: the session stays queued and loses nothing.
    """
    session_id = session.id
    with redis_connection() as connection:
        queue(connection).enqueue_call(
            REFINE_SESSION,
            args=(str(session_id),),
            job_id=str(session_id),
            description=f"refinement session {session_id}",
            timeout=settings.current().max_seconds + GRACE_SECONDS,
            result_ttl=0,
            failure_ttl=FAILURE_TTL_SECONDS,
        )
    db.session.get_one(RefinementSession, session_id).dispatched_at = clock.now()
    db.session.commit()
