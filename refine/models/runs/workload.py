"""Counts of waiting, running and ended runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    Double,
    Row,
    Select,
    and_,
    cast,
    func,
    literal_column,
    select,
    true,
    union_all,
)

from refine.extensions import db
from refine.models.agent import Agent, eligibility
from refine.models.columns import AccountId
from refine.models.runs.run import LIVE
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.spending import SUMMED
from refine.models.runs.task import MemoryTask

# The bounds of a histogram of how long runs took.
RUN_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900)


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
        sessions = _sessions(account_id).subquery("sessions")
        tasks = _tasks(at, account_id).subquery("tasks")
        both = select(sessions, tasks).join_from(sessions, tasks, true())
        return cls(*db.session.execute(both).one())


def _sessions(account_id: AccountId) -> Select[*tuple[Any, ...]]:
    waits, runs = RefinementSession.is_waiting, RefinementSession.is_held
    return select(
        func.count().filter(waits),
        func.min(RefinementSession.created_at).filter(waits),
        func.count().filter(runs),
    ).where(RefinementSession.status.in_(LIVE), RefinementSession.in_account(account_id))


def _tasks(at: datetime, account_id: AccountId) -> Select[*tuple[Any, ...]]:
    could_run = and_(
        MemoryTask.is_waiting, MemoryTask.due_at <= at, eligibility.is_available(automatic=True)
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


def ended_runs() -> Sequence[Row[*tuple[Any, ...]]]:
    """Add up ended sessions and tasks; ``effect``: tokens saved, or memories added; ``slot``: the
    number of the bounds in ``RUN_SECONDS`` that they exceeded.
    """
    sessions = _ended(RefinementSession, literal_column("'session'"), "saved_tokens")
    tasks = _ended(MemoryTask, MemoryTask.kind, "memories_kept")
    return db.session.execute(union_all(sessions, tasks)).all()


def _ended(run: Any, kind: Any, effect: str) -> Select[*tuple[Any, ...]]:
    summed = {"effect": effect, **{name: name for name in SUMMED}}
    # one that no worker took has taken no time
    took = run.ended_at - func.coalesce(run.started_at, run.ended_at)
    seconds = cast(func.extract("epoch", took), Double)
    return (
        select(
            kind.label("kind"),
            run.status,
            run.trigger,
            run.error_kind,
            func.count().label("runs"),
            func.width_bucket(seconds, cast(RUN_SECONDS, ARRAY(Double))).label("slot"),
            func.sum(seconds).label("seconds"),
            # a session whose edits added tokens would make a counter go down
            *(
                func.sum(func.greatest(getattr(run, column), 0)).label(name)
                for name, column in summed.items()
            ),
        )
        .where(run.ended_at.is_not(None))
        .group_by("kind", run.status, run.trigger, run.error_kind, "slot")
    )
