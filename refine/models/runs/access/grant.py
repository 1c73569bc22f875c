"""Access grants: a human's request to read one agent's memories, and what came of it.

One row for the request, the agent's answer, and the permission. Times that decide who may read are
the database's, so a wrong process clock cannot extend access.
"""

import uuid
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    Text,
    and_,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock
from refine.errors import Refused
from refine.extensions import Base, agreed_now, database_now, db
from refine.models.agent import Agent
from refine.models.agent.owner import ERASED
from refine.models.columns import Sealed, SealedText
from refine.models.people import Account, User
from refine.models.people.recording import is_recorded
from refine.models.runs.access.ending import (
    ANSWERS,
    END_REASONS,
    ENDS,
    NO_LONGER_ALLOWED,
    UNFINISHED,
    GrantEnding,
)
from refine.models.runs.access.terms import (
    MAX_MINUTES,
    MIN_MINUTES,
    REASONS,
    AccessTerms,
    valid_purpose,
)
from refine.models.unrecorded import ChainOwner

STATUSES = ("requested", "granted", "declined", "failed", "lapsed", "ended")


class AccessAlreadyRequested(Refused):
    """The user has an open request or a live grant for this agent; ``grant_id`` is that one."""

    def __init__(self, grant_id: uuid.UUID, status: str) -> None:
        self.grant_id = grant_id
        super().__init__(
            "you already have access to this agent's memories; end that access first"
            if status == "granted"
            else "you have already asked this agent; wait for its answer"
        )


class AccessGrant(GrantEnding, Base):
    """One user's access to one agent's memories, from the request on."""

    __tablename__ = "access_grants"
    __table_args__ = (
        CheckConstraint(f"reason IN {tuple(REASONS)}", name="reason"),
        CheckConstraint(f"status IN {STATUSES}", name="status"),
        CheckConstraint(f"end_reason IN {END_REASONS}", name="end_reason"),
        CheckConstraint(
            f"duration_minutes BETWEEN {MIN_MINUTES} AND {MAX_MINUTES}", name="duration_minutes"
        ),
        CheckConstraint("(granted_at IS NULL) = (expires_at IS NULL)", name="expires"),
        CheckConstraint("status <> 'granted' OR granted_at IS NOT NULL", name="granted"),
        CheckConstraint("lease_token IS NULL OR status = 'requested'", name="lease"),
        Index(
            "uq_access_grants_open",
            "user_id",
            "agent_id",
            "status",
            unique=True,
            postgresql_where=text(f"status IN {UNFINISHED}"),
        ),
        Index(
            "ix_access_grants_open_since",
            "status",
            "created_at",
            postgresql_where=text(f"status IN {UNFINISHED}"),
        ),
        Index("ix_access_grants_created_at", text("created_at DESC"), "id"),
    )

    # the status changes only with the answer; a lease shows that a worker is asking the agent
    waiting_status = running_status = "requested"

    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), index=True)
    status: Mapped[str] = mapped_column(
        Text, default="requested", server_default=text("'requested'")
    )
    sealed_purpose: Mapped[Sealed] = mapped_column("purpose", deferred=True)
    duration_minutes: Mapped[int]
    generation_id: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[datetime | None] = mapped_column("asked_at")

    purpose = SealedText(valid_purpose)

    account: Mapped[Account] = relationship()
    user: Mapped[User] = relationship(foreign_keys="AccessGrant.user_id")

    digest_columns = (
        "id",
        "account_id",
        "user_id",
        "agent_id",
        "model_id",
        "status",
        "reason",
        "duration_minutes",
        "created_at",
        "granted_at",
        "expires_at",
        "end_reason",
        "ended_by_id",
        "ended_at",
    )

    @property
    def chain_owner(self) -> ChainOwner:
        """The agent."""
        return ChainOwner(agent_id=self.agent_id)

    def __init__(self, *, agent: Agent, **fields: Any) -> None:
        super().__init__(agent=agent, **{"account": agent.account, **fields})

    # -- requesting ------------------------------------------------------------------------------

    @classmethod
    def request(
        cls, agent: Agent, user: User, terms: AccessTerms, *, is_for_more: bool = False
    ) -> "AccessGrant":
        """Add the user's request; Refused, or AccessAlreadyRequested, if they may not ask.

        ``is_for_more``: they may read now, and until then whatever the agent answers.
        """
        agent.lock()
        if (reason := cls.refusal_reason(agent, user)) is not None:
            raise Refused(reason)
        cls._refuse_second(agent, user, is_for_more=is_for_more)
        requested = cls._add(
            agent,
            agreed_now(),
            user_id=user.id,
            reason=terms.reason,
            purpose=terms.purpose,
            duration_minutes=terms.duration_minutes,
        )
        requested.record(
            "requested",
            user=user,
            at=requested.created_at,
            duration_minutes=terms.duration_minutes,
            sealed={"purpose": terms.purpose},
        )
        return requested

    @classmethod
    def unfinished_of(cls, agent: Agent, user: User) -> "AccessGrant | None":
        """Return the user's open request or live grant for an agent."""
        found = db.session.scalars(cls._select_unfinished(agent.id, user.id))
        return next((each for each in found if not each.has_expired), None)

    @classmethod
    def _refuse_second(cls, agent: Agent, user: User, *, is_for_more: bool) -> None:
        """The agent is locked, so the second of two concurrent requests is refused."""
        for found in cls._lock_unfinished(agent.id, user.id):
            is_beside = is_for_more and found.status == "granted"
            if not found.end_if_expired() and not is_beside:
                raise AccessAlreadyRequested(found.id, found.status)

    def ask_for_more(self, user: User, purpose: object, duration_minutes: object) -> "AccessGrant":
        """Add a request of its user, who may read now: for the same agent and reason.

        A yes is a grant of its own and ends this one; until then this one ends when it did.
        """
        if user.id != self.user_id or not self.permits_reading:
            raise Refused("only a user who may currently read these memories can ask for more time")
        terms = AccessTerms.checked(
            reason=self.reason, purpose=purpose, duration_minutes=duration_minutes
        )
        return self.request(self.agent, user, terms, is_for_more=True)

    def allow_asking_again(self) -> None:
        """Let the user of this declined request ask again, on the agent's behalf. Recorded once."""
        self.lock()
        if self.status != "declined":
            raise Refused("this request was not declined, so there is nothing to allow")
        if not self.may_be_repeated:
            self.record("asking_allowed", at=database_now())

    # -- asking the agent ------------------------------------------------------------------------

    @property
    def is_automatic(self) -> bool:
        """Never: a person requests access."""
        return False

    def _may_start(self, at: datetime) -> bool:
        """Tell whether the agent may be asked now; if not, the request ends.

        RowAltered if its end is on record: an earlier version of the row was put back.
        """
        self._require_no_record((*ANSWERS, *ENDS))
        if self.has_lapsed:
            self.lapse()
            return False
        if (reason := self.refusal_reason(self.agent, self.user)) is not None:
            self.fail(reason, NO_LONGER_ALLOWED)
            return False
        return True

    def settle(self, reply: str | None, *, agreed: bool, generation_id: str | None) -> None:
        """Store the agent's answer; a yes grants access if the user may still ask.

        A no counts in any case. Nothing happens if the request is no longer open. Of an agent that
        was erased meanwhile, no answer can be kept: the request fails.
        """
        self.lock()
        if self.status != "requested":
            return
        if self.agent.is_erased:
            self.fail(ERASED, NO_LONGER_ALLOWED)
            return
        self.reply, self.generation_id = reply, generation_id
        if not agreed:
            self._end_request("declined", sealed={"reply": self.reply})
        elif (reason := self.refusal_reason(self.agent, self.user)) is not None:
            self.fail(reason, NO_LONGER_ALLOWED)
        else:
            self._grant(agreed_now())

    def _grant(self, at: datetime) -> None:
        for other in self._lock_unfinished(self.agent_id, self.user_id):
            if other.status == "granted" and not other.end_if_expired():
                other._end_grant("ended_by_user", at, self.user)  # who asked for more
        self.status, self.granted_at, self.lease_token = "granted", at, None
        self.expires_at = at + timedelta(minutes=self.duration_minutes)
        self.record(
            "granted",
            at=at,
            duration_minutes=self.duration_minutes,
            expires_at=clock.iso(self.expires_at),
            model_id=self.model_id,
            sealed={"reply": self.reply},
        )
        # numbers and times only: no text that anybody typed
        self.agent.ledger.add_journal_note(
            f"I let admin {self.user_id} read my memories for {self.duration_minutes} minutes, "
            f"until {self.expires_at:%Y-%m-%d %H:%M} UTC, because {REASONS[self.reason]}. "
            "What they read is recorded, and I can revoke it.",
            at,
        )

    # -- reading ---------------------------------------------------------------------------------

    @hybrid_property
    def permits_reading(self) -> bool:
        """Whether its user may read: not expired by the database's clock, agent and user able.

        In SQL now; in Python as of when the row was loaded.
        """
        return (
            self.current_status == "granted"
            and self.agent.unavailable_reason(automatic=False) is None
            and self.user.inability_reason(self.account_id) is None
            and not self._is_recorded(ENDS)
        )

    @permits_reading.inplace.expression
    @classmethod
    def _permits_reading(cls) -> ColumnElement[bool]:
        return and_(
            cls.status == "granted",
            ~cls.has_expired,
            ~is_recorded("AccessGrant", cls.id, *ENDS),
            cls.agent.has(Agent.is_available(automatic=False)),
            cls.user.has(User.is_able(cls.account_id)),
        )
