"""Who may be asked: each rule in Python for one agent, and in SQL for many, side by side."""

from datetime import datetime
from typing import Literal

from sqlalchemy import ColumnElement, Computed, and_, case, exists, literal, not_, select, text
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, mapped_column

from refine import clock
from refine.extensions import db
from refine.models.agent.owner import ERASED, LedgerOwner
from refine.models.columns import BoolFalse, BoolTrue
from refine.models.keys import WrappedKey
from refine.models.ledger import AgentMemory
from refine.models.people import Account

# Why the clock or a sweep queues a session.
AutomaticTrigger = Literal["weekly", "over_budget"]

DEFAULT_CORE_TOKEN_BUDGET = 5_000


# Why an agent may not be asked.
NOT_ACTIVE = "the agent is not active"
PAUSED = "the agent is paused"
ACCOUNT_PAUSED = "its account is paused"


class Eligibility(LedgerOwner):
    """The settings and figures that decide whether an agent's model is asked for anything."""

    core_token_budget: Mapped[int] = mapped_column(
        default=DEFAULT_CORE_TOKEN_BUDGET, server_default=text(str(DEFAULT_CORE_TOKEN_BUDGET))
    )
    # ``is_over_budget`` by the row's own figures, for an index
    over_budget: Mapped[bool] = mapped_column(
        Computed("core_tokens > core_token_budget", persisted=True)
    )
    active: Mapped[BoolTrue]
    paused: Mapped[BoolFalse]
    last_refinement_at: Mapped[datetime | None]

    # -- may it be asked at all? -----------------------------------------------------------------

    def unavailable_reason(self, *, automatic: bool) -> str | None:
        """Return why the agent may not be asked; None if it may.

        With ``automatic`` runs, a paused agent or account may not be asked either.
        """
        if not self.active:
            return NOT_ACTIVE
        if self.is_erased:
            return ERASED
        if automatic and self.paused:
            return PAUSED
        if automatic and self.account.paused:
            return ACCOUNT_PAUSED
        return None

    @classmethod
    def is_available(cls, *, automatic: bool) -> ColumnElement[bool]:
        """Return the SQL condition that ``unavailable_reason`` is None."""
        return and_(*map(not_, cls.obstacles(automatic=automatic).values()))

    @classmethod
    def obstacles(cls, *, automatic: bool) -> dict[str, ColumnElement[bool]]:
        """Return each ``unavailable_reason``, in its order, with its SQL condition."""
        by_hand = {NOT_ACTIVE: ~cls.active, ERASED: cls._key_is_destroyed()}
        if not automatic:
            return by_hand
        account_paused = exists().where(Account.id == cls.account_id, Account.paused)
        return by_hand | {PAUSED: and_(cls.paused), ACCOUNT_PAUSED: account_paused.correlate(cls)}

    @classmethod
    def _key_is_destroyed(cls) -> ColumnElement[bool]:
        # looked up for each agent; EXISTS would read the keys of all, however few agents are listed
        key = select(WrappedKey.wrapped.is_(None)).where(WrappedKey.id == cls.data_key_id)
        return key.correlate(cls).scalar_subquery()

    @classmethod
    def why_unavailable(cls, *, automatic: bool) -> ColumnElement[str | None]:
        """Return ``unavailable_reason`` as an SQL expression."""
        obstacles = cls.obstacles(automatic=automatic).items()
        return case(*((condition, literal(reason)) for reason, condition in obstacles))

    # -- is there anything to refine? ------------------------------------------------------------

    def has_unlocked_core_memory(self) -> bool:
        """Tell whether there is a kept core memory that a session may change."""
        unlocked = self.ledger.core().where(~AgentMemory.is_locked).limit(1)
        return db.session.scalar(unlocked) is not None

    @classmethod
    def with_unlocked_core_memory(cls) -> ColumnElement[bool]:
        """Return ``has_unlocked_core_memory`` as an SQL condition."""
        return exists().where(
            AgentMemory.agent_id == cls.id, AgentMemory.is_kept_core, ~AgentMemory.is_locked
        )

    @hybrid_property
    def may_be_refined(self) -> bool:
        """Whether it may be asked automatically, and has something to refine."""
        return not self.unavailable_reason(automatic=True) and self.has_unlocked_core_memory()

    @may_be_refined.inplace.expression
    @classmethod
    def _may_be_refined(cls) -> ColumnElement[bool]:
        return and_(cls.is_available(automatic=True), cls.with_unlocked_core_memory())

    # -- is a session due? -----------------------------------------------------------------------

    def needs_refinement(self, at: datetime | None = None) -> bool:
        """Tell whether a session is due: for the account's last slot, or over the budget."""
        return self.due_trigger(at or clock.now()) is not None

    def due_trigger(self, at: datetime) -> AutomaticTrigger | None:
        """Return why a session is due; None if none is, or if the agent may not be refined."""
        return self.trigger_since(self.account.last_slot(at)) if self.may_be_refined else None

    def trigger_since(self, slot_at: datetime) -> AutomaticTrigger | None:
        """Return ``due_trigger`` of an agent that may be refined, for its account's last slot."""
        if self.was_not_refined_since(slot_at):
            return "weekly"
        return "over_budget" if self.is_over_budget else None

    def was_not_refined_since(self, slot_at: datetime) -> bool:
        """Tell whether the agent was not refined since this slot."""
        return self.last_refinement_at is None or self.last_refinement_at < slot_at

    @classmethod
    def not_refined_since(cls, slot_at: datetime) -> ColumnElement[bool]:
        """Return ``was_not_refined_since`` as an SQL condition."""
        return cls.last_refinement_at.is_(None) | (cls.last_refinement_at < slot_at)

    @hybrid_property
    def is_over_budget(self) -> bool:
        """Whether the token mass exceeds the budget."""
        return self.exceeds_budget(self.core_token_usage)

    @is_over_budget.inplace.expression
    @classmethod
    def _is_over_budget(cls) -> ColumnElement[bool]:
        return and_(cls.over_budget)

    def exceeds_budget(self, tokens: int) -> bool:
        """Tell whether a ledger of so many tokens is over the budget."""
        return tokens > self.core_token_budget

    @hybrid_property
    def budget_share(self) -> float:
        """The token mass as a share of the budget, as the row tells it."""
        return self.core_tokens * 1.0 / self.core_token_budget
