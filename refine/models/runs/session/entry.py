"""What a session counts for each memory of its ledger."""

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Integer,
    Text,
    Uuid,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from refine.errors import RowAltered
from refine.extensions import Base, canonical_json, db
from refine.models.ledger import AgentMemory
from refine.models.ledger.values import MemoryValues
from refine.models.runs.session.state import SessionState
from refine.sealing import DataKey


class SessionEntry(Base):
    """One memory of a session's ledger, or a merge result that the session made.

    ``ceiling_tokens`` is what the memory had at the snapshot (for a merge result: what its sources
    still counted), ``counting_tokens`` what it counts now, at most its ceiling. ``shown_digest``
    covers both, and the state that the agent saw last (``digest_of_shown``); the agent may not
    change a memory that it has not seen. Entries go when their session ends: its records tell
    everything that is to be kept.
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
            digest_of_shown(session.id, memory, Entry(memory.id, *[memory.token_estimate] * 2), key)
            if shown is None or memory.id in shown
            else None
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
    def removed_tokens(cls, session: SessionState) -> int:
        """Return how many tokens of the snapshot no longer count."""
        total = select(func.coalesce(func.sum(cls.counting_tokens), 0))
        counting = db.session.scalars(total.where(cls.session_id == session.id)).one()
        return int(session.mass_before or 0) - int(counting)

    @classmethod
    def require_present(cls, session: SessionState) -> None:
        """Raise RowAltered unless the session has removed what its entries no longer count."""
        if cls.removed_tokens(session) != session.removed_tokens:
            raise RowAltered(f"RefinementSession {session.id}")

    @classmethod
    def delete_of(cls, session_id: uuid.UUID) -> None:
        """Delete the entries of a session that ends."""
        gone = delete(cls).where(cls.session_id == session_id)
        db.session.execute(gone.execution_options(synchronize_session=False))

    @classmethod
    def show(cls, session: SessionState, memories: Iterable[MemoryValues]) -> None:
        """Note that the agent has seen these memories in their present state.

        RowAltered if the entries are not what the session was measured by.
        """
        cls.require_present(session)
        shown = {memory.id: memory for memory in memories}
        key = session.data_key()
        for memory_id, entry in cls.of(session.id, shown).items():
            entry.shown_digest = digest_of_shown(session.id, shown[memory_id], entry, key)


class Entry(NamedTuple):
    """The values of a ``SessionEntry``."""

    memory_id: int
    ceiling_tokens: int
    counting_tokens: int
    shown_digest: str | None = None


def digest_of_shown(
    session_id: uuid.UUID, memory: MemoryValues, entry: Entry | SessionEntry, key: DataKey
) -> str:
    """Return the keyed digest of an entry whose memory was shown in its present state."""
    counts = [str(session_id), memory.id, entry.ceiling_tokens, entry.counting_tokens]
    return key.mac(canonical_json([*counts, memory.state_under(key)]), "session_entries.shown")


# The part of a statement that writes entries, new ones and others: see ``counted``.
COUNTED = (
    text("""
INSERT INTO session_entries (session_id, memory_id, ceiling_tokens, counting_tokens, shown_digest)
SELECT :entries_session_id, * FROM unnest(
  CAST(:entries_memory_id AS bigint[]), CAST(:entries_ceiling_tokens AS integer[]),
  CAST(:entries_counting_tokens AS integer[]), CAST(:entries_shown_digest AS text[])
)
ON CONFLICT (session_id, memory_id) DO UPDATE
SET counting_tokens = excluded.counting_tokens, shown_digest = excluded.shown_digest
""")
    .bindparams(bindparam("entries_session_id", type_=Uuid))
    .columns()
    .cte("counted")
)


def counted(session_id: uuid.UUID, entries: Iterable[Entry]) -> dict[str, Any]:
    """Return the parameters of ``COUNTED``."""
    columns = dict(zip(Entry._fields, map(list, zip(*entries, strict=True)), strict=True))
    arrays = {f"entries_{name}": values for name, values in columns.items()}
    return {"entries_session_id": session_id, **arrays}
