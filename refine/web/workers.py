"""The workers of the installation, as Operations lists them."""

import uuid
from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Text, cast, literal, select, union_all

from refine.extensions import db
from refine.jobs.workers import WorkerInfo, WorkerList
from refine.models import AccessGrant, Agent, MemoryTask, RefinementSession
from refine.web.presenting import Badge
from refine.web.words import TASK_KINDS

_SHOWN = 50


class WorkerRun(NamedTuple):
    """A run that a worker has in hand."""

    id: uuid.UUID
    kind: str
    agent_id: int
    agent: str
    since: datetime | None

    @property
    def word(self) -> str:
        return TASK_KINDS.get(self.kind, self.kind)

    @property
    def is_session(self) -> bool:
        return self.kind == "session"


class WorkerRow(NamedTuple):
    """A worker, its state, and its runs."""

    worker: WorkerInfo
    state: Badge
    runs: list[WorkerRun]


def worker_rows(found: WorkerList) -> list[WorkerRow]:
    """Return the workers with what they do, the most recently seen first."""
    shown = found.workers[:_SHOWN]
    runs = _runs({id_ for worker in shown for id_ in worker.run_ids})
    missing = found.silent
    return [
        WorkerRow(
            worker,
            _state(worker, is_missing=worker in missing),
            [runs[id_] for id_ in worker.run_ids if id_ in runs],
        )
        for worker in shown
    ]


def _state(worker: WorkerInfo, *, is_missing: bool) -> Badge:
    if not worker.is_live:
        return Badge("no heartbeat", "✗", "bad") if is_missing else Badge("gone", "○", "calm")
    if not worker.serves_runs:
        return Badge("clock", "◷", "ok")
    return Badge("working", "▶", "live") if worker.run_ids else Badge("idle", "✓", "ok")


def _runs(ids: Collection[uuid.UUID]) -> dict[uuid.UUID, WorkerRun]:
    if not ids:
        return {}
    runs = union_all(
        *(
            select(
                kind.id.label("id"),
                cast(word, Text).label("kind"),
                kind.agent_id.label("agent_id"),
                kind.started_at.label("since"),
            ).where(kind.id.in_(ids))
            for kind, word in (
                (RefinementSession, literal("session")),
                (MemoryTask, MemoryTask.kind),
                (AccessGrant, literal("access request")),
            )
        )
    ).subquery()
    named = select(runs.c.id, runs.c.kind, runs.c.agent_id, Agent.name, runs.c.since)
    rows = db.session.execute(named.join(Agent, Agent.id == runs.c.agent_id))
    return {row.id: WorkerRun(*row) for row in rows}
