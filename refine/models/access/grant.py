"""A request to read, and what became of it: one row for its whole life."""

import uuid
from typing import Any

from sqlalchemy import CheckConstraint, ColumnElement, Index, Select, and_, func, or_, select, text

from refine.errors import Refused
from refine.extensions import Base, database_now, db
from refine.models.access.asking import Asking
from refine.models.access.columns import (
    END_REASONS,
    MAX_MINUTES,
    MIN_MINUTES,
    OPEN,
    REASONS,
    STATUSES,
    Wish,
)
from refine.models.agent import Agent
from refine.models.user import User


class AccessOpenAlready(Refused):
    """The user has an open request or a live grant for this agent; ``grant_id`` is that one."""

    def __init__(self, grant_id: uuid.UUID, status: str) -> None:
        self.grant_id = grant_id
        super().__init__(
            "you may read this agent's memories already; end that access first"
            if status == "granted"
            else "you have asked this agent already; wait for its answer"
        )


class AccessGrant(Asking, Base):
    """One user's permission to read one agent's memories, from the request on."""

    __table_args__ = (
        CheckConstraint(f"reason IN {REASONS}", name="reason"),
        CheckConstraint(f"status IN {STATUSES}", name="status"),
        CheckConstraint(f"end_reason IN {END_REASONS}", name="end_reason"),
        CheckConstraint(
            f"duration_minutes BETWEEN {MIN_MINUTES} AND {MAX_MINUTES}", name="duration_minutes"
        ),
        CheckConstraint("(granted_at IS NULL) = (expires_at IS NULL)", name="expires"),
        CheckConstraint("status <> 'granted' OR granted_at IS NOT NULL", name="granted"),
        Index(
            "uq_access_grants_open",
            "user_id",
            "agent_id",
            unique=True,
            postgresql_where=text("status IN ('requested', 'granted')"),
        ),
        Index(
            "ix_access_grants_open_since",
            "status",
            "created_at",
            postgresql_where=text("status IN ('requested', 'granted')"),
        ),
    )

    def __init__(self, *, agent: Agent, **fields: Any) -> None:
        # the agent comes first: its key seals the rest
        self.agent = agent
        super().__init__(**{"account": agent.account, "model_id": agent.model_id, **fields})

    @classmethod
    def request(cls, agent: Agent, user: User, wish: Wish) -> "AccessGrant":
        """Add a request of this user's; Refused where none is taken, AccessOpenAlready for two."""
        agent.lock()
        if (why_not := cls.why_not(agent, user)) is not None:
            raise Refused(why_not)
        cls._refuse_a_second(agent, user)
        requested = cls(
            id=uuid.uuid4(),
            agent=agent,
            user_id=user.id,
            reason=wish.reason,
            purpose=wish.purpose,
            duration_minutes=wish.duration_minutes,
            status="requested",
            created_at=database_now(),
        )
        db.session.add(requested)
        db.session.flush()
        requested.record(
            "requested",
            user=user,
            at=requested.created_at,
            duration_minutes=wish.duration_minutes,
            sealed={"purpose": wish.purpose},
        )
        return requested

    @classmethod
    def open_of(cls, agent: Agent, user: User) -> "AccessGrant | None":
        """Return the user's open request or live grant for an agent."""
        found = db.session.scalar(cls._open_ones(agent, user))
        return None if found is None or found.is_past_its_end else found

    @classmethod
    def lets_read(cls) -> ColumnElement[bool]:
        """Return the condition under which a grant lets its user read, at this very moment.

        By the database's clock, and as long as agent and user are what they must be.
        """
        return and_(
            cls.status == "granted",
            cls.expires_at > func.clock_timestamp(),
            cls.agent.has(Agent.active),
            cls.user.has(
                User.active
                & (User.role == "admin")
                & or_(User.site_admin, User.account_id == cls.account_id)
            ),
        )

    @classmethod
    def _refuse_a_second(cls, agent: Agent, user: User) -> None:
        """The agent is locked: who asks twice at once is refused here, one after the other."""
        is_open = cls._open_ones(agent, user).with_for_update(key_share=True)
        found = db.session.scalar(is_open.execution_options(populate_existing=True))
        if found is not None and not found.expire_if_due():
            raise AccessOpenAlready(found.id, found.status)

    @classmethod
    def _open_ones(cls, agent: Agent, user: User) -> Select["AccessGrant"]:
        return select(cls).where(
            cls.user_id == user.id, cls.agent_id == agent.id, cls.status.in_(OPEN)
        )
