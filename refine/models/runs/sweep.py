"""Sweeps: what a user asked for all or many agents of an account, a batch at a time.

The request is stored in the database, and its progress in the transaction of each batch: a crash
loses nothing, and no agent has its turn twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ForeignKey,
    Index,
    Select,
    Text,
    func,
    literal,
    select,
    text,
    true,
)
from sqlalchemy.orm import Mapped, joinedload, mapped_column, relationship

from refine import clock
from refine.errors import RowAltered
from refine.extensions import Base, db
from refine.extensions.statements import plain_query
from refine.models.agent import Agent
from refine.models.attested import Attested
from refine.models.columns import BigId, Count, account_parameter, one_of_ids
from refine.models.people import Account, User
from refine.models.people.recording import is_recorded
from refine.models.unrecorded import ChainOwner

# What a user may ask for agents that they chose; values are of ``budget`` and ``threshold``.
Work = Literal["refine", "pause", "resume", "budget", "threshold"]

_ENDED = "sweep_ended"


class Sweep(Attested, Base):
    """One request to queue a session for every agent of an account that needs one.

    Or, if it has a ``work``, to do that for chosen agents of the account.
    """

    __tablename__ = "sweeps"
    __table_args__ = (
        Index(
            "uq_sweeps_open_account",
            "account_id",
            unique=True,
            postgresql_where=text("ended_at IS NULL AND work IS NULL"),
        ),
    )

    id: Mapped[BigId]
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"), index=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    # all agents up to this id had their turn, except those that somebody held just then
    after_id: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    held_ids: Mapped[list[int]] = mapped_column(
        ARRAY(BigInteger), default=list, server_default=text("'{}'")
    )
    # how many were queued, or changed, and how many not
    queued: Mapped[Count]
    not_queued: Mapped[Count]
    work: Mapped[str | None] = mapped_column(Text)
    value: Mapped[str | None] = mapped_column(Text)
    agent_ids: Mapped[list[int] | None] = mapped_column(ARRAY(BigInteger))

    account: Mapped[Account] = relationship()
    user: Mapped[User] = relationship()

    digest_columns = (
        "id",
        "account_id",
        "user_id",
        "created_at",
        "ended_at",
        "work",
        "value",
        "agent_ids",
    )

    @property
    def chain_owner(self) -> ChainOwner:
        """The account."""
        return ChainOwner(account_id=self.account_id)

    # -- asking ----------------------------------------------------------------------------------

    @classmethod
    def request(cls, account: Account, user: User, at: datetime | None = None) -> "Sweep":
        """Return the account's open sweep; or add one, recorded as ``sweep_requested``."""
        account.lock()
        if (under_way := cls.open_of(account)) is not None:
            return under_way
        at = at or clock.now()
        requested = cls(account=account, user=user, created_at=at)
        db.session.add(requested)
        db.session.flush()
        requested._record("sweep_requested", user=user, at=at)
        return requested

    @classmethod
    def request_work(
        cls,
        account: Account,
        user: User,
        work: Work,
        agent_ids: Sequence[int],
        value: str | None = None,
    ) -> "Sweep":
        """Add a sweep that does this work for these agents, recorded as ``sweep_requested``."""
        account.lock()
        chosen = sorted(agent_ids)
        at = clock.now()
        requested = cls(
            account=account, user=user, created_at=at, work=work, value=value, agent_ids=chosen
        )
        db.session.add(requested)
        db.session.flush()
        about = {"work": work, "value": value, "agents": len(chosen)}
        requested._record("sweep_requested", user=user, at=at, data=about)
        return requested

    @classmethod
    def open_of(cls, account: Account) -> "Sweep | None":
        """Return the account's sweep of all agents that has not ended."""
        mine = cls._open().where(cls.account_id == account.id, cls.work.is_(None))
        return db.session.scalar(mine)

    @classmethod
    def open_works(cls, account_id: int | None) -> Sequence["Sweep"]:
        """Return what is still to be done for chosen agents (of this account), the oldest first.

        A short query tells if there is anything.
        """
        ids = _open_work_ids(is_of_account=account_id is not None).rows(account_id=account_id)
        if not ids:
            return []
        works = select(cls).where(cls.id == one_of_ids(row.id for row in ids)).order_by(cls.id)
        return db.session.scalars(works.options(joinedload(cls.user))).all()

    @classmethod
    def open_ids(cls) -> Sequence[int]:
        """Return the ids of the sweeps that have not ended: each account's oldest, the next ones, …

        So no account waits for everything that another one asked for.
        """
        turn = func.row_number().over(partition_by=cls.account_id, order_by=cls.id)
        in_turn = cls._open().with_only_columns(cls.id).order_by(turn, cls.id)
        return db.session.scalars(in_turn).all()

    @classmethod
    def _open(cls) -> Select["Sweep"]:
        return select(cls).where(cls.ended_at.is_(None))

    # -- going on --------------------------------------------------------------------------------

    @classmethod
    def locked(cls, sweep_id: int) -> "Sweep | None":
        """Return the sweep, locked; None if it has ended.

        RowAltered if it was changed outside the application, or its end is on record.
        """
        found = db.session.scalar(
            cls._open()
            .where(cls.id == sweep_id)
            .with_for_update(key_share=True)
            .execution_options(populate_existing=True)
        )
        if found is not None:
            found.require_genuine()
            if db.session.scalar(select(is_recorded("Sweep", literal(sweep_id), _ENDED))):
                raise RowAltered(found.row_name)
        return found

    def next_ids(self, limit: int) -> list[int]:
        """Return the agents that come next: those that were held come last, one by one."""
        following = self._following().order_by(Agent.id).limit(limit)
        return list(db.session.scalars(following)) or self._held()[:1]

    def still_waiting(self, ids: Iterable[int]) -> list[int]:
        """Return those of these agents whose turn has not come yet.

        Never others than the chosen ones: the list of held agents may change and has no digest.
        """
        chosen = ids if self.agent_ids is None else {*ids} & {*self.agent_ids}
        return sorted(id_ for id_ in chosen if id_ > self.after_id or id_ in self.held_ids)

    def note(self, turns: Mapping[int, bool | None]) -> None:
        """Note who had a turn, and whether a session was queued; None: somebody held the agent."""
        self.after_id = max(self.after_id, *turns)
        held = {id_ for id_, is_queued in turns.items() if is_queued is None}
        self.held_ids = sorted(({*self.held_ids} - turns.keys()) | held)
        self.queued += sum(is_queued is True for is_queued in turns.values())
        self.not_queued += sum(is_queued is False for is_queued in turns.values())

    def count_waiting(self) -> int:
        """Return how many agents' turn has not come yet."""
        if self.agent_ids is not None:
            return len(self.still_waiting(self.agent_ids))
        following = select(func.count()).select_from(self._following().subquery())
        return len(self._held()) + (db.session.scalar(following) or 0)

    def end_if_over(self, at: datetime | None = None) -> int:
        """Return how many agents still wait; end it if none does, recorded as ``sweep_ended``.

        It ends early if its user may no longer act: nothing is done in their name any more.
        """
        waiting, inability = self.count_waiting(), self.user.inability_reason(self.account_id)
        if waiting and inability is None:
            return waiting
        self.ended_at = at = at or clock.now()
        data: dict[str, Any] = {"queued": self.queued, "not_queued": self.not_queued}
        if waiting:
            data |= {"left_out": waiting, "reason": inability}
        if self.work is not None:
            data["work"] = self.work
        self._record(_ENDED, data=data, at=at)
        return 0

    def _held(self) -> list[int]:
        """Return the held agents, of this account alone: their list has no digest."""
        if not self.held_ids:
            return []
        held = self._of_account().where(Agent.id == one_of_ids(self.held_ids)).order_by(Agent.id)
        return list(db.session.scalars(held))

    def _of_account(self) -> Select[int]:
        return select(Agent.id).where(Agent.account_id == self.account_id)

    def _following(self) -> Select[int]:
        following = self._of_account().where(Agent.id > self.after_id)
        if self.agent_ids is not None:
            following = following.where(Agent.id == one_of_ids(self.agent_ids))
        return following

    def _record(self, action: str, **about: Any) -> None:
        self.account.record(action, subject=("Sweep", self.id), **about)


@plain_query
def _open_work_ids(*, is_of_account: bool) -> Select[int]:
    account_id = account_parameter(is_of_account=is_of_account)
    is_theirs = Sweep.account_id == account_id if is_of_account else true()
    open_ids = Sweep._open().with_only_columns(Sweep.id)
    return open_ids.where(Sweep.work.is_not(None), is_theirs)
