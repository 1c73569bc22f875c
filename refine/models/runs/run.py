"""What sessions, memory tasks and access requests share. A worker claims a waiting run and gets
a lease, compared in every writing transaction: whoever lost the run can change nothing.
"""

import uuid
from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, Self, cast

import structlog
from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    Index,
    Select,
    Text,
    and_,
    bindparam,
    func,
    select,
    text,
    true,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Load, Mapped, declared_attr, mapped_column, relationship
from sqlalchemy.orm.attributes import set_committed_value

from refine import clock
from refine.errors import Refused, RowAltered
from refine.extensions import UtcDateTime, after_commit, database_now, db
from refine.logs import ENDED_RUNS
from refine.models.agent import Agent, eligibility
from refine.models.attested import Attested
from refine.models.columns import USD_DECIMALS, AccountId, Count, Created, Usd, Uuid, in_constants
from refine.models.runs.spending import CostCaps
from refine.rules.prices import Usage
from refine.sealing import DataKey

# A worker that missed three heartbeats (one is due every 10 seconds) is lost. The tick comes every
# minute, so the run ends within two minutes.
LOST_AFTER = timedelta(seconds=35)

# The error kinds of a run whose worker is gone, and of one whose process was asked to stop.
WORKER_LOST = "worker_lost"
WORKER_STOPPED = "worker_stopped"

_log = structlog.get_logger(ENDED_RUNS)


class LeaseLost(Refused):
    """The run ended, or another worker has it; ``status`` is its present state."""

    def __init__(self, status: str) -> None:
        self.status = status
        super().__init__(f"the run is no longer held by this worker (it is {status})")


def blocked_reason(agent: Agent, caps: CostCaps | None) -> str | None:
    """Return why no run may start, or None; ``caps`` stop automatic runs, and no others."""
    reason = eligibility.unavailable_reason(agent, automatic=caps is not None)
    return reason or (caps.reason(agent.account) if caps is not None else None)


def errors_index(table: str) -> Index:
    return Index(
        f"ix_{table}_errors",
        text("created_at DESC"),
        "id",
        "error_kind",
        postgresql_where=text("error_kind IS NOT NULL"),
    )


class Run:
    # The statuses of a run that waits for a worker, and of one that a worker holds.
    waiting_status: ClassVar[str] = "queued"
    running_status: ClassVar[str] = "running"
    unsigned: ClassVar[Mapping[str, str]] = {
        "heartbeat_at": "written by heartbeats",
    }

    id: Mapped[Uuid]
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    status: Mapped[str] = mapped_column(Text, default="queued", server_default=text("'queued'"))
    error_kind: Mapped[str | None] = mapped_column(Text)

    model_id: Mapped[str] = mapped_column(Text)
    llm_calls: Mapped[Count]
    prompt_tokens: Mapped[Count]
    cached_tokens: Mapped[Count]
    completion_tokens: Mapped[Count]
    cost_usd: Mapped[Usd] = mapped_column(default=Decimal(0), server_default=text("0"))
    # calls whose cost is not part of cost_usd, because no price is known; their tokens count, as
    # many as possible if nobody counted them
    unpriced_calls: Mapped[Count]
    # the name of a model that answered in place of the agent's own
    answered_model_id: Mapped[str | None] = mapped_column(Text)

    lease_token: Mapped[uuid.UUID | None]
    heartbeat_at: Mapped[datetime | None]
    created_at: Mapped[Created]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    @declared_attr
    def agent(self) -> Mapped[Agent]:
        return relationship()

    def __init__(self, *, agent: Agent, **fields: Any) -> None:
        # the agent comes first: its key seals the rest
        self.agent = agent
        super().__init__(**{"model_id": agent.model_id, **fields})

    def data_key(self) -> DataKey:
        _require_genuine(self)
        return self.agent.data_key()

    def lock(self) -> None:
        """Lock the agent, then this row, and reload both."""
        self.agent.lock()
        db.session.refresh(self, with_for_update={"key_share": True})

    # The conditions hold in Python and in SQL alike.

    @hybrid_property
    def is_live(self) -> bool:
        return self.status in (self.waiting_status, self.running_status)

    @is_live.inplace.expression
    @classmethod
    def _is_live(cls) -> ColumnElement[bool]:
        return in_constants(cls.status, (cls.waiting_status, cls.running_status))

    @hybrid_property
    def is_held(self) -> bool:
        return self.lease_token != None  # noqa: E711

    @hybrid_property
    def is_waiting(self) -> bool:
        return (self.status == self.waiting_status) & (self.lease_token == None)  # noqa: E711

    # -- waiting ---------------------------------------------------------------------------------

    @classmethod
    def _add(cls, agent: Agent, at: datetime, **fields: Any) -> Self:
        return cls._add_all([cls._new(agent, at, **fields)])[0]

    @classmethod
    def _new(cls, agent: Agent, at: datetime, **fields: Any) -> Self:
        fields = {"status": cls.waiting_status, "created_at": at, **fields}
        return cls(id=uuid.uuid4(), agent=agent, **fields)

    @classmethod
    def _add_all(cls, runs: list[Self]) -> list[Self]:
        db.session.add_all(runs)
        db.session.flush()
        return runs

    @classmethod
    def select_waiting(cls, limit: int) -> Select[uuid.UUID]:
        """Select the ids of waiting runs, oldest first, without locked ones."""
        return (
            select(cls.id)
            .where(cls.is_waiting)
            .order_by(cls.created_at, cls.id)
            .limit(limit)
            .with_for_update(skip_locked=True, key_share=True, of=cls)
        )

    # -- the lease -------------------------------------------------------------------------------

    def claim(
        self, at: datetime | None = None, *, lease_token: uuid.UUID | None = None
    ) -> uuid.UUID | None:
        """Claim the run and return the lease; None if it ended, waits, or has another worker."""
        at = at or clock.now()
        self.lock()
        _require_genuine(self)
        if not self.is_waiting or not self._may_start(at):
            return None
        self.status, self.lease_token = self.running_status, lease_token or uuid.uuid4()
        if not self.has_begun:
            self.model_id, self.started_at = self.agent.model_id, at
        self.heartbeat_at = func.clock_timestamp(type_=UtcDateTime())
        db.session.flush()
        return self.lease_token

    @abstractmethod
    def _may_start(self, at: datetime) -> bool:
        """Tell whether the locked run may start now; if not, end it or put it off."""

    def skip_reason(self, at: datetime) -> str | None:
        """Return why the run may not start now: an altered agent, or what blocks it; or None."""
        if not self.agent.is_genuine:
            return f"{self.agent.row_name} was changed in the database, not by Refine"
        return blocked_reason(self.agent, CostCaps(at) if self.is_automatic else None)

    @property
    @abstractmethod
    def is_automatic(self) -> bool:
        """Whether the run obeys pauses and the cost cap."""

    @property
    def has_begun(self) -> bool:
        """Whether a worker goes on with what another began."""
        return False

    @classmethod
    def held(cls, run_id: uuid.UUID, lease_token: uuid.UUID | None) -> Self:
        """Lock and return the run with its agent; LeaseLost if the lease is over, RowAltered."""
        given = {"run_id": run_id, "lease_token": lease_token}
        found = db.session.execute(_select_held(cast(Any, cls)), given).one_or_none()
        held, agent = cast(tuple[Self, Agent], found) if found is not None else (None, None)
        if held is None or (held.id, held.lease_token) != (run_id, lease_token):
            raise LeaseLost(db.session.scalars(select(cls.status).where(cls.id == run_id)).one())
        set_committed_value(held, "agent", agent)  # otherwise it would be read again
        _require_genuine(held)
        return held

    def count_call(self, usage: Usage, *, is_aside: bool = False) -> None:
        """Count a call; ``is_aside``: in a conversation that is not the run's own."""
        self.llm_calls += 1
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.completion_tokens += usage.completion_tokens
        if usage.cost_usd is None:
            self.unpriced_calls += 1
        else:
            self.cost_usd += usage.cost_usd

    # -- lost workers ----------------------------------------------------------------------------

    # By the database's clock, which also stamps the heartbeats: the clocks of workers differ.

    def is_lost(self, at: datetime | None = None) -> bool:
        """Tell whether its worker stopped sending heartbeats, at ``at``."""
        silent_since = self.heartbeat_at if self.is_held else None
        return silent_since is not None and silent_since < database_now() - _silence(at)

    @classmethod
    def select_agents_with_lost(cls, at: datetime | None = None) -> Select[int]:
        """Return a query for the ids of agents with a run that ``is_lost``."""
        is_silent = cls.heartbeat_at < func.statement_timestamp() - _silence(at)
        return select(Agent.id).join(cls, cls.agent_id == Agent.id).where(cls.is_held, is_silent)

    @classmethod
    def held_of(cls, agent: Agent) -> list[Self]:
        return list(
            db.session.scalars(
                select(cls)
                .where(cls.agent_id == agent.id, cls.is_held)
                .execution_options(populate_existing=True)
            )
        )

    def end_if_lost(self, at: datetime | None = None) -> bool:
        """Give up the run if ``is_lost``; tell whether it was."""
        self.lock()
        if is_lost := self.is_lost(at):
            self.give_up("the worker was lost", WORKER_LOST, at=at)
        return is_lost

    def end_if_still_held(self, lease_token: uuid.UUID, at: datetime | None = None) -> bool:
        """Give up the run of a worker that stops; tell whether its lease still held."""
        self.lock()
        if was_held := self.lease_token == lease_token:
            self.give_up("its worker stopped before it ended", WORKER_LOST, at=at)
        return was_held

    @abstractmethod
    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """End the run, or retry it later, after a failure."""

    def hand_back(self, reason: str, *, at: datetime | None = None) -> None:
        """Leave the run to another worker, as its own was asked to stop; else give it up."""
        self.give_up(reason, WORKER_STOPPED, at=at)

    @classmethod
    def has_ended_with_error(cls) -> ColumnElement[bool]:
        """Match failed runs and those ended early; a task that waits for a retry has not ended."""
        return and_(cls.ended_at.is_not(None), cls.error_kind.is_not(None))

    # -- for lists and logs ----------------------------------------------------------------------

    @classmethod
    def in_account(cls, account_id: AccountId) -> ColumnElement[bool]:
        """Return the SQL condition that the run is of this account; None: of any."""
        if account_id is None:
            return true()
        return cls.agent_id.in_(select(Agent.id).where(Agent.account_id == account_id))

    def usage(self) -> dict[str, Any]:
        return {
            "llm_calls": self.llm_calls,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": f"{self.cost_usd:.{USD_DECIMALS}f}",
            "unpriced_calls": self.unpriced_calls,
        }


class RetriableRun(Run):
    # What its id is called in logs.
    named_in_logs: ClassVar[str]

    trigger: Mapped[str] = mapped_column(Text)
    slot_at: Mapped[datetime | None]
    attempt: Mapped[int] = mapped_column(default=1, server_default=text("1"))
    end_reason: Mapped[str | None] = mapped_column(Text)
    prompt_version: Mapped[str | None] = mapped_column(Text)
    tool_calls: Mapped[Count]

    @property
    def duration(self) -> timedelta | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at

    @abstractmethod
    def measured(self) -> dict[str, Any]:
        """Return the figures that its record holds."""

    def facts(self) -> dict[str, Any]:
        """Return ids and figures for the log line."""
        names = ("agent_id", "model_id", "attempt", "error_kind", "tool_calls")
        lasted = self.duration or timedelta(0)
        return {
            self.named_in_logs: str(self.id),
            "account_id": self.agent.account_id,
            **{name: getattr(self, name) for name in names},
            "seconds": round(lasted.total_seconds(), 3),
            **self.measured(),
        }


# The states of a session or a memory task that has not ended.
LIVE = (Run.waiting_status, Run.running_status)


@cache
def _select_held(kind: Any) -> Select[Any]:
    """Return a statement that is built once: it precedes each step of a run."""
    return (
        select(kind, Agent)
        .join(Agent, Agent.id == kind.agent_id)
        # a caller without a lease would otherwise hold every run without one
        .where(
            kind.id == bindparam("run_id"),
            kind.is_held,
            kind.lease_token == bindparam("lease_token"),
        )
        # the digests cover them
        .options(Load(kind).undefer_group("sealed"), Load(Agent).undefer_group("prompts"))
        .with_for_update(key_share=True, of=[Agent, kind])  # in this order, as everywhere
        .execution_options(populate_existing=True)
    )


def _silence(at: datetime | None) -> timedelta:
    return LOST_AFTER - (clock.time_ahead_of_now(at) if at is not None else timedelta(0))


def _require_genuine(run: Run) -> None:
    if isinstance(run, Attested):
        run.require_genuine()
    if run.agent_id not in (None, run.agent.id):
        raise RowAltered(f"{type(run).__name__} {run.id}")


# -- logging --------------------------------------------------------------------------------------


# What passes by itself: automatic runs are tried again.
_PASSING = frozenset({"connection", "timeout", "deadline", "rate_limited", "worker_stopped"})


def log_after_commit(message: str, facts: dict[str, Any]) -> None:
    """Log an ended run after the commit, once, as bad as it is; never after a rollback."""
    kind = facts["error_kind"]
    level = "warning" if kind is not None else "info"
    if facts["status"] == "failed" and kind not in _PASSING:
        level = "error"
    after_commit(lambda: getattr(_log, level)(message, **facts))
