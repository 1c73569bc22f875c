"""What waits for workers, and what they work on."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, select, true

from refine.extensions import instant
from refine.extensions.statements import plain_query
from refine.models.agent import Agent
from refine.models.columns import AccountId, account_parameter
from refine.models.runs.run import LIVE
from refine.models.runs.session import RefinementSession
from refine.models.runs.task import MemoryTask


class Workload(NamedTuple):
    """How many runs wait only for a worker, since when the oldest could run, how many run."""

    sessions: int
    sessions_since: datetime | None
    sessions_running: int
    reflections: int
    conversations: int
    tasks_since: datetime | None
    tasks_running: int

    @classmethod
    def at(cls, at: datetime, account_id: int | None = None) -> "Workload":
        """Return the workload (of this account), in one query."""
        both = _both(is_of_account=account_id is not None)
        return cls(*both.rows(at=at, account_id=account_id)[0])


@plain_query
def _both(*, is_of_account: bool) -> Select[*tuple[Any, ...]]:
    account_id = account_parameter(is_of_account=is_of_account)
    sessions = _sessions(account_id).subquery("sessions")
    tasks = _tasks(account_id).subquery("tasks")
    return select(sessions, tasks).join_from(sessions, tasks, true())


def _sessions(account_id: AccountId) -> Select[*tuple[Any, ...]]:
    waits, runs = RefinementSession.is_waiting, RefinementSession.is_held
    return select(
        func.count().filter(waits),
        func.min(RefinementSession.created_at).filter(waits),
        func.count().filter(runs),
    ).where(RefinementSession.status.in_(LIVE), RefinementSession.in_account(account_id))


def _tasks(account_id: AccountId) -> Select[*tuple[Any, ...]]:
    could_run = and_(
        MemoryTask.is_waiting,
        MemoryTask.due_at <= instant("at"),
        Agent.is_available(automatic=True),
    )
    return (
        select(
            func.count().filter(could_run, MemoryTask.kind == "reflection"),
            func.count().filter(could_run, MemoryTask.kind == "extraction"),
            func.min(MemoryTask.due_at).filter(could_run),
            func.count().filter(MemoryTask.is_held),
        )
        .join(Agent, Agent.id == MemoryTask.agent_id)
        .where(MemoryTask.status.in_(LIVE), MemoryTask.in_account(account_id))
    )
