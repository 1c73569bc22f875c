"""What sessions and memory tasks share: runs in which an agent's model is asked by one worker.

A worker holds a run by a lease: a token that it was given when it claimed the run, compared in
every transaction that changes something. A worker that was given up can change nothing more.
"""

import uuid
from abc import abstractmethod
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Protocol, Self

from sqlalchemy import ColumnElement, ForeignKey, Select, Text, func, select, text
from sqlalchemy.orm import Mapped, mapped_column

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.agents_own import AgentsOwn
from refine.models.columns import Count, Created, Usd

# A worker's heart beats every 10 seconds; one that missed three beats is lost. With the tick's
# minute, and what holds a tick up, its session ends within two.
LOST_AFTER = timedelta(seconds=35)

LIVE = ("queued", "running")


class LeaseLost(Refused):
    """The run ended, or was given to another worker; ``status`` is what it is now."""

    def __init__(self, status: str) -> None:
        self.status = status
        super().__init__(f"the run is no longer held by this worker (it is {status})")


class Spent(Protocol):
    """What one call of a model cost."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def cost_usd(self) -> Decimal: ...


class Run(AgentsOwn):
    """The columns of a run's life, its lease and its cost, and the verbs that hang on them."""

    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    trigger: Mapped[str] = mapped_column(Text)
    slot_at: Mapped[datetime | None]
    attempt: Mapped[int] = mapped_column(default=1, server_default=text("1"))
    status: Mapped[str] = mapped_column(Text, default="queued", server_default=text("'queued'"))
    end_reason: Mapped[str | None] = mapped_column(Text)
    error_kind: Mapped[str | None] = mapped_column(Text)

    model_id: Mapped[str] = mapped_column(Text)
    prompt_version: Mapped[str | None] = mapped_column(Text)
    tool_calls: Mapped[Count]
    llm_calls: Mapped[Count]
    prompt_tokens: Mapped[Count]
    cached_tokens: Mapped[Count]
    completion_tokens: Mapped[Count]
    cost_usd: Mapped[Usd] = mapped_column(default=Decimal(0), server_default=text("0"))

    lease_token: Mapped[uuid.UUID | None]
    heartbeat_at: Mapped[datetime | None]
    dispatched_at: Mapped[datetime | None]
    created_at: Mapped[Created]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    @classmethod
    def held(cls, held_id: uuid.UUID, lease_token: uuid.UUID | None) -> Self:
        """Return the run, locked together with its agent, if the lease still holds it.

        The lease is the caller's own copy. Raises LeaseLost where it ended or is held by another;
        then this worker can change nothing more.
        """
        whose = select(cls.agent_id).where(cls.id == held_id).scalar_subquery()
        db.session.scalars(
            select(Agent)
            .where(Agent.id == whose)
            .with_for_update(key_share=True, of=Agent)
            .execution_options(populate_existing=True)
        ).one()
        held = db.session.scalar(
            select(cls)
            .where(cls.id == held_id, cls.lease_token == lease_token, cls.status == "running")
            .with_for_update(key_share=True)
            .execution_options(populate_existing=True)
        )
        if held is None:
            raise LeaseLost(db.session.scalars(select(cls.status).where(cls.id == held_id)).one())
        return held

    def count_call(self, spent: Spent) -> None:
        """Add what one call of the model cost."""
        self.llm_calls += 1
        self.prompt_tokens += spent.prompt_tokens
        self.cached_tokens += spent.cached_tokens
        self.completion_tokens += spent.completion_tokens
        self.cost_usd += spent.cost_usd

    @classmethod
    def in_accounts(cls, account_ids: Select[int]) -> ColumnElement[bool]:
        """Return the condition that a run belongs to one of these accounts."""
        return cls.agent_id.in_(select(Agent.id).where(Agent.account_id.in_(account_ids)))

    @classmethod
    def running(cls) -> int:
        """Return how many of this kind are running."""
        return db.session.scalar(select(func.count()).where(cls.status == "running")) or 0

    # -- workers that are gone --------------------------------------------------------------------

    @classmethod
    def lost(cls, at: datetime) -> Select[int]:
        """Return a query for the ids of agents whose worker gives no sign of life."""
        return (
            select(Agent.id)
            .join(cls, cls.agent_id == Agent.id)
            .where(cls.status == "running", cls.heartbeat_at < at - LOST_AFTER)
        )

    def end_if_lost(self, at: datetime | None = None) -> bool:
        """Give it up if its worker gave no sign of life; tell whether it was so."""
        at = at or clock.now()
        self.lock()
        lost = self.status == "running" and (self.heartbeat_at or at) < at - LOST_AFTER
        if lost:
            self.give_up("the worker was lost", "worker_lost", at=at)
        return lost

    def end_if_killed(self, at: datetime | None = None) -> bool:
        """Give it up if it runs, as its process is known to be dead; tell whether it did."""
        self.lock()
        was_running = self.status == "running"
        if was_running:
            self.give_up("its worker's process was killed", "worker_lost", at=at)
        return was_running

    @abstractmethod
    def give_up(
        self, reason: str, error_kind: str | None = None, *, at: datetime | None = None
    ) -> None:
        """End, or try again later, after a failure."""
