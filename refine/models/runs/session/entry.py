"""What a session counts for each memory of its ledger."""

import uuid
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Integer,
    Select,
    Text,
    delete,
    func,
    insert,
    literal,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from refine.extensions import Base, db
from refine.models.ledger import AgentMemory
from refine.models.runs.session.state import SessionState


class SessionEntry(Base):
    """One memory of a session's ledger, or a merge result that the session made.

    ``ceiling_tokens`` is what the memory had at the snapshot (for a merge result: what its sources
    still counted), ``counting_tokens`` what it counts now, at most its ceiling. ``shown_digest`` is
    the state that the agent saw last; the agent may not change a memory that it has not seen.
    Entries go when their session ends: its records tell everything that is to be kept.
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

    @classmethod
    def add_all(
        cls, session: SessionState, ledger: Sequence[AgentMemory], shown: Collection[int] | None
    ) -> None:
        """Add an entry for each memory; ``shown`` are the ids that the agent sees, None: all.

        One statement, however many memories.
        """
        key = session.data_key()
        digests = [
            memory.state_digest_under(key) if shown is None or memory.id in shown else None
            for memory in ledger
        ]
        rows = (
            func.unnest(
                literal([memory.id for memory in ledger], ARRAY(BigInteger)),
                literal([memory.token_estimate for memory in ledger], ARRAY(Integer)),
                literal(digests, ARRAY(Text)),
            )
            .table_valued("memory_id", "tokens", "digest")
            .render_derived()
        )
        entries = select(
            literal(session.id), rows.c.memory_id, rows.c.tokens, rows.c.tokens, rows.c.digest
        )
        columns = (
            *(cls.session_id, cls.memory_id, cls.ceiling_tokens, cls.counting_tokens),
            cls.shown_digest,
        )
        db.session.execute(insert(cls).from_select(columns, entries))

    @classmethod
    def of(
        cls, session_id: uuid.UUID, ids: Iterable[int] | None = None
    ) -> "dict[int, SessionEntry]":
        """Return the entries of these memories, or of all, by the memory's id."""
        wanted = select(cls).where(cls.session_id == session_id)
        if ids is not None:
            wanted = wanted.where(cls.memory_id.in_(list(ids)))
        return {entry.memory_id: entry for entry in db.session.scalars(wanted)}

    @classmethod
    def select_counting_tokens(cls, session: SessionState) -> Select[int]:
        """Return a query for how many tokens of the snapshot still count."""
        total = select(func.coalesce(func.sum(cls.counting_tokens), 0))
        return total.where(cls.session_id == session.id)

    @classmethod
    def removed_tokens(cls, session: SessionState) -> int:
        """Return how many tokens of the snapshot no longer count."""
        counting = db.session.scalars(cls.select_counting_tokens(session)).one()
        return int(session.mass_before or 0) - int(counting)

    @classmethod
    def delete_of(cls, session_id: uuid.UUID) -> None:
        """Delete the entries of a session that ends."""
        gone = delete(cls).where(cls.session_id == session_id)
        db.session.execute(gone.execution_options(synchronize_session=False))

    @classmethod
    def show(cls, session_id: uuid.UUID, memories: Iterable[AgentMemory]) -> None:
        """Note that the agent has seen these memories in their present state."""
        shown = {memory.id: memory for memory in memories}
        for memory_id, entry in cls.of(session_id, shown).items():
            entry.shown_digest = shown[memory_id].state_digest
