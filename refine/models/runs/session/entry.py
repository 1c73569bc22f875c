"""Counts of a session for each memory of its ledger."""

import uuid
from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Text, func, select
from sqlalchemy.orm import Mapped, mapped_column

from refine.errors import RowAltered
from refine.extensions import Base, db
from refine.models.attested import Attested, copy_signed, write
from refine.models.columns import in_ids
from refine.models.keys import WrappedKey
from refine.models.ledger.memory import AgentMemory, state_digest_of
from refine.models.runs.run import Run


class SessionEntry(Attested, Base):
    """One memory of a session's ledger; deleted at its end. ``ceiling_tokens`` is its size at the
    snapshot (of a merge: its sources' count), ``counting_tokens`` at most that.
    """

    __tablename__ = "session_entries"
    __table_args__ = (
        CheckConstraint("counting_tokens BETWEEN 0 AND ceiling_tokens", name="counting_tokens"),
    )

    session_id: Mapped[uuid.UUID] = mapped_column(
        ForeignKey("refinement_sessions.id"), primary_key=True
    )
    memory_id: Mapped[int] = mapped_column(
        ForeignKey("agent_memories.id"), primary_key=True, index=True
    )
    ceiling_tokens: Mapped[int]
    counting_tokens: Mapped[int]
    shown_digest: Mapped[str | None] = mapped_column(Text)

    @property
    def row_name(self) -> str:
        return f"an entry of RefinementSession {self.session_id}"

    @classmethod
    def add_all(
        cls,
        session: Run,
        memories: Iterable[AgentMemory],
        shown: Collection[int] | None,
    ) -> list["SessionEntry"]:
        """Add entries of a ledger, detached; ``shown``: ids of memories shown, None: all."""
        key, entries = session.data_key(), []
        for memory in memories:
            is_shown = shown is None or memory.id in shown
            entry = cls(session_id=session.id, memory_id=memory.id)
            entry.ceiling_tokens = entry.counting_tokens = memory.token_estimate
            entry.shown_digest = state_digest_of(memory, key) if is_shown else None
            entries.append(entry)
        copy_signed(cls, map(vars, entries), WrappedKey.platform_key())
        return entries

    @classmethod
    def of(cls, session: Run, ids: Collection[int] | None = None) -> "dict[int, SessionEntry]":
        """Return entries by memory id; RowAltered for an altered one."""
        mine = select(cls).where(cls.session_id == session.id)
        if ids is not None:
            mine = mine.where(in_ids(cls.memory_id, ids))
        found = db.session.scalars(mine.execution_options(populate_existing=True)).all()
        for entry in found:
            entry.require_genuine()
        return {entry.memory_id: entry for entry in found}

    @classmethod
    def removed_tokens(cls, session: Any) -> int:
        """Return the snapshot's tokens that no longer count; RowAltered for altered entries."""
        counting: Any = func.coalesce(func.sum(cls.counting_tokens), 0)
        counted = db.session.scalar(select(counting).where(cls.session_id == session.id))
        removed = int(session.mass_before or 0) - int(counted or 0)
        if removed < session.removed_tokens:
            raise RowAltered(f"RefinementSession {session.id}")
        return removed

    @classmethod
    def show(cls, session: Any, memories: Iterable[AgentMemory]) -> None:
        """Note that the agent saw these memories in their present state; RowAltered."""
        if cls.removed_tokens(session) != session.removed_tokens:
            raise RowAltered(f"RefinementSession {session.id}")
        key = session.data_key()
        digests = {memory.id: state_digest_of(memory, key) for memory in memories}
        entries = cls.of(session, digests.keys())
        for id_, entry in entries.items():
            entry.shown_digest = digests[id_]
        write(*entries.values())
