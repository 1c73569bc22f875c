"""Asking for a run. The queues in Redis carry only ids and wake the workers; PostgreSQL alone knows
what waits, and what comes first.
"""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from ssl import SSLCertVerificationError
from typing import Any, NamedTuple, TypeVar

from redis import ConnectionPool, Redis
from redis.exceptions import RedisError
from rq import Queue
from rq.exceptions import DequeueTimeout
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.utils import as_text

from refine import settings
from refine.diagnoses import Finding, cause_of
from refine.errors import Unreachable
from refine.extensions import db
from refine.models import AccessGrant, Agent, MemoryTask, RefinementSession, User
from refine.models.runs import task as tasks
from refine.models.runs.access.asking_rules import AccessTerms
from refine.models.runs.run import Run
from refine.models.runs.session.session import Trigger

RUNS = "refine-runs"
TICKS = "refine-ticks"
QUEUES = (RUNS, TICKS)

AnyRun = TypeVar("AnyRun", RefinementSession, MemoryTask, AccessGrant)

RUN_KINDS: tuple[type[Run], ...] = (RefinementSession, MemoryTask, AccessGrant)
_RUN_JOB = "refine.jobs.worker.work_on"

# How long Redis may take for an answer: to the clock, and to a request, whose process then leaves
# Redis alone for a while.
PATIENCE_SECONDS = 5.0
SHORT_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 10.0
_silent_until: dict[str, float] = {}

# The tick adds no more ids than this to what Redis holds.
_MOST_WAITING = 1_000


class JsonJob(Job):
    """RQ's job with a payload in JSON: rq-scheduler takes the class, but no serializer."""

    def __init__(self, id: Any = None, connection: Any = None, serializer: Any = None) -> None:
        super().__init__(id, connection, JSONSerializer)


@contextmanager
def redis_connection(*, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[Redis]:
    pool = _pool(settings.current().redis_url, patience_seconds)
    try:
        yield Redis(connection_pool=pool)
    except (RedisError, OSError) as error:
        raise Unreachable(_fault_of(error)) from None


def require_redis() -> None:
    """Raise Unreachable if Redis does not answer, or takes nothing."""
    with redis_connection(patience_seconds=SHORT_PATIENCE_SECONDS) as connection:
        connection.set("refine:check", "1", ex=60)  # a full one can still be read


@cache
def _pool(url: str, patience_seconds: float) -> ConnectionPool:
    limits = {"socket_connect_timeout": patience_seconds, "socket_timeout": patience_seconds}
    return ConnectionPool.from_url(url, **limits)


def _fault_of(error: BaseException) -> Finding:
    """Return what is wrong with Redis, without a word of the URL: it may hold a password."""
    cause = error
    while not isinstance(cause, OSError) and cause.__context__ is not None:
        cause = cause.__context__  # redis-py puts its own errors around those of the system
    if isinstance(cause, SSLCertVerificationError):
        reason = cause.verify_message.partition(",")[0]  # what follows quotes the host
        return Finding.of("redis_certificate", reason=reason)
    code = cause_of("redis", f"{type(error).__name__} {error} {cause}")
    name = type(cause if isinstance(cause, OSError) else error).__name__
    return Finding.of(code or "redis_away", error=name)


def queue(name: str, connection: Redis) -> Queue:
    return Queue(name, connection=connection, serializer=JSONSerializer, job_class=JsonJob)


class Waiting(NamedTuple):
    """A run that waits; it stays usable after the transaction."""

    kind: type[Run]
    id: uuid.UUID


def waiting_runs(at: datetime, limit: int, *, automatic_limit: int) -> Iterator[Waiting]:
    """Yield the unlocked runs that may begin, requested ones first."""
    is_automatic = RefinementSession.is_automatic
    for id_ in db.session.scalars(AccessGrant.select_waiting(limit)):
        yield Waiting(AccessGrant, id_)
    for id_ in db.session.scalars(RefinementSession.select_waiting(limit).where(~is_automatic)):
        yield Waiting(RefinementSession, id_)
    if automatic_limit > 0:
        swept = RefinementSession.select_waiting(automatic_limit).where(is_automatic)
        for id_ in db.session.scalars(swept):
            yield Waiting(RefinementSession, id_)
        for id_ in tasks.due(automatic_limit, at):
            yield Waiting(MemoryTask, id_)


def announce_waiting(at: datetime, patience_seconds: float = PATIENCE_SECONDS) -> int:
    """Announce, outside a transaction, the runs whose ids Redis lacks; return how many."""
    waiting = waiting_runs(at, _MOST_WAITING, automatic_limit=_MOST_WAITING)
    ids = [str(run.id) for run in waiting]
    db.session.commit()
    if not ids:
        return 0
    with redis_connection(patience_seconds=patience_seconds) as connection:
        known = set(queue(RUNS, connection).job_ids)
        missing = [id_ for id_ in ids if id_ not in known]
        _announce(missing, connection)
    return len(missing)


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
    """Commit the run and announce it, without waiting for long; workers find it anyway."""
    id_, url = str(run.id), settings.current().redis_url
    db.session.commit()
    if time.monotonic() >= _silent_until.get(url, 0.0):
        try:
            with redis_connection(patience_seconds=SHORT_PATIENCE_SECONDS) as connection:
                _announce([id_], connection)
        except Unreachable:
            _silent_until[url] = time.monotonic() + _PAUSE_SECONDS
    return run


def _announce(ids: Iterable[str], connection: Redis) -> None:
    jobs = [
        Queue.prepare_data(
            _RUN_JOB, args=(id_,), job_id=id_, description=f"run {id_}", result_ttl=0
        )
        for id_ in ids
    ]
    queue(RUNS, connection).enqueue_many(jobs)


def take(names: Sequence[str], seconds: int | None) -> str | None:
    """Take the next id within ``seconds``; return its queue's name, or None. Raises Unreachable."""
    patience = PATIENCE_SECONDS + (seconds or 0)
    with redis_connection(patience_seconds=patience) as connection:
        by_key = {queue(name, connection).key: name for name in names}
        try:
            taken = Queue.lpop(list(by_key), seconds, connection=connection)
        except DequeueTimeout:
            return None
        if taken is None:
            return None
        key, id_ = map(as_text, taken)
        if by_key[key] != TICKS:  # rq-scheduler keeps its own
            connection.delete(Job.key_for(id_))
        return by_key[key]
