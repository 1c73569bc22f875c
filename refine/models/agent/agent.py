"""An agent: its identity, and how it comes into being and is found."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import CheckConstraint, Connection, Index, event, func, or_, select, text
from sqlalchemy.orm import Mapped, Mapper

from refine.errors import Ambiguous, NotFound
from refine.extensions import Base, db
from refine.models.agent.configuring import Configurable
from refine.models.agent.settings import MAX_CORE_TOKEN_BUDGET
from refine.models.attested import Attested
from refine.models.audit import ChainHead
from refine.models.columns import Created, Updated, row_id
from refine.models.keys import WrappedKey
from refine.models.people import Account
from refine.rules.ids import best_matches, id_in
from refine.rules.threshold import threshold_check


class Agent(Configurable, Base):
    """An AI persona: name, model, prompts, settings; its memories and sessions refer to it."""

    __tablename__ = "agents"
    __table_args__ = (
        CheckConstraint(threshold_check("refinement_threshold"), name="refinement_threshold"),
        CheckConstraint(
            f"core_token_budget BETWEEN 1 AND {MAX_CORE_TOKEN_BUDGET}", name="core_token_budget"
        ),
        Index("ix_agents_name", func.lower(text("name")), "id"),
        Index("ix_agents_account_id_name", "account_id", func.lower(text("name")), "id"),
        Index(
            "ix_agents_over_budget", "account_id", postgresql_where=text("over_budget AND active")
        ),
        Index("ix_agents_last_session_status", "last_session_status", "account_id"),
        Index(
            "ix_agents_unseen_session",
            "last_session_status",
            text("last_session_at DESC"),
            "id",
            postgresql_where=text("last_session_seen_at IS NULL"),
        ),
        Index(
            "ix_agents_last_session_error_kind",
            "last_session_error_kind",
            "account_id",
            postgresql_where=text("last_session_error_kind IS NOT NULL"),
        ),
    )

    # the figures are read when they are needed: triggers count what is added with the agent
    __mapper_args__ = {**Attested.__mapper_args__, "eager_defaults": False}

    created_at: Mapped[Created]
    updated_at: Mapped[Updated]

    unsigned: ClassVar[Mapping[str, str]] = {
        "last_refinement_at": "says when a session is due, not what it may do",
        "updated_at": "set by every update, also of unsigned columns",
    }

    def __init__(self, *, account: Account, name: str, model_id: str, **fields: Any) -> None:
        # id and key come first: they are needed to seal the prompts among the fields
        self.wrapped_key = WrappedKey.for_agent(row_id(self))
        super().__init__(account=account, name=name, model_id=model_id, **fields)

    @classmethod
    def create(cls, account: Account, *, actor: Mapping[str, Any], **fields: Any) -> "Agent":
        """Add an agent, recorded as ``agent_created``; ``actor`` says in the data who adds it."""
        made = cls(account=account, **fields)
        db.session.add(made)
        db.session.flush()
        about = {"model_id": made.model_id, **actor}
        made.record("agent_created", subject=("Agent", made.id), data=about)
        return made

    # -- finding --------------------------------------------------------------------------------

    @classmethod
    def named(cls, reference: str) -> "Agent":
        """Return the agent of that id or name, regardless of case; an id or exact name goes first.

        NotFound, or Ambiguous with the ids.
        """
        same = func.lower(cls.name) == func.lower(reference)
        if (agent_id := id_in(reference)) is not None:
            same = or_(cls.id == agent_id, same)
        found = db.session.scalars(select(cls).where(same).order_by(cls.id)).all()
        if not found:
            raise NotFound(f"no agent is called {reference!r}; `refine agent list` shows them")
        best = best_matches(found, reference, lambda each: str(each.id), lambda each: each.name)
        if len(best) > 1:
            ids = ", ".join(str(agent.id) for agent in best)
            raise Ambiguous(f"several agents are called {reference!r}; use an id: {ids}")
        return best[0]

    @property
    def next_session_at(self) -> datetime | None:
        """When the next scheduled session is due; None if none is."""
        is_served = self.unavailable_reason(automatic=True) is None
        return self.account.next_due_at if is_served else None


@event.listens_for(Agent, "after_insert")
def _begin_chain(_mapper: Mapper[Any], connection: Connection, agent: Agent) -> None:
    ChainHead.begin(agent.chain_owner, connection)
