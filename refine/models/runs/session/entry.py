"""What a session counts for each memory of its ledger."""

import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Self

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Text,
    Uuid,
    bindparam,
    func,
    select,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from refine.errors import RowAltered
from refine.extensions import Base, db
from refine.extensions.statements import Plain
from refine.models.columns import array
from refine.models.ledger.values import MemoryValues
from refine.models.runs.session.state import SessionState
from refine.sealing import DataKey


class SessionEntry(Base):
    """One memory of a session's ledger, or a merge result that the session made.

    ``ceiling_tokens`` is what the memory had at the snapshot (for a merge result: what its sources
    still counted), ``counting_tokens`` what it counts now, at most its ceiling. ``shown_digest`` is
    the state that the agent saw last; the agent may not change a memory that it has not seen.
    ``digest`` covers the row. Entries are deleted when their session ends: its records hold
    everything that is kept.
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
    digest: Mapped[str | None] = mapped_column(Text)

    @classmethod
    def of(cls, session: SessionState, ids: Iterable[int] | None = None) -> "dict[int, Entry]":
        """Return the entries of these memories, or of all, by the memory's id.

        RowAltered if one was changed outside the application.
        """
        wanted = select(*(getattr(cls, name) for name in ENTRY), cls.digest)
        wanted = wanted.where(cls.session_id == session.id)
        if ids is not None:
            wanted = wanted.where(cls.memory_id.in_(list(ids)))
        key = session.data_key()
        found = (genuine_entry(session.id, row, key) for row in db.session.execute(wanted))
        return {entry.memory_id: entry for entry in found}

    @classmethod
    def removed_tokens(cls, session: SessionState) -> int:
        """Return how many tokens of the snapshot no longer count.

        RowAltered if that is less than the session's edits removed.
        """
        ((counting,),) = _COUNTING.execute({"session_id": session.id})
        removed = int(session.mass_before or 0) - int(counting)
        if removed < session.removed_tokens:
            raise RowAltered(f"RefinementSession {session.id}")
        return removed

    @classmethod
    def show(cls, session: SessionState, memories: Iterable[MemoryValues]) -> None:
        """Note that the agent has seen these memories in their present state.

        RowAltered if the entries are not what the session was measured by.
        """
        if cls.removed_tokens(session) != session.removed_tokens:
            raise RowAltered(f"RefinementSession {session.id}")
        key = session.data_key()
        digests = {memory.id: memory.state_digest_under(key) for memory in memories}
        shown = [
            entry._replace(shown_digest=digests[id_])
            for id_, entry in cls.of(session, digests).items()
        ]
        db.session.execute(COUNTED, counted(session.id, shown, key))


_COUNTING = Plain(
    select(func.coalesce(func.sum(SessionEntry.counting_tokens), 0)).where(
        SessionEntry.session_id == bindparam("session_id")
    )
)


class Entry(NamedTuple):
    """The values of a ``SessionEntry``."""

    memory_id: int
    ceiling_tokens: int
    counting_tokens: int
    shown_digest: str | None

    @classmethod
    def of(cls, memory: MemoryValues, key: DataKey) -> Self:
        """Return a new entry of a memory that the agent sees as it is."""
        tokens = memory.token_estimate
        return cls(memory.id, tokens, tokens, memory.state_digest_under(key))


ENTRY = Entry._fields

# Writes entries, new ones and others: see ``counted``.
COUNTED = text("""
INSERT INTO session_entries
  (session_id, memory_id, ceiling_tokens, counting_tokens, shown_digest, digest)
SELECT :entries_session_id, * FROM unnest(
  CAST(:entries_memory_id AS bigint[]), CAST(:entries_ceiling_tokens AS integer[]),
  CAST(:entries_counting_tokens AS integer[]), CAST(:entries_shown_digest AS text[]),
  CAST(:entries_digest AS text[])
)
ON CONFLICT (session_id, memory_id) DO UPDATE
SET counting_tokens = excluded.counting_tokens, shown_digest = excluded.shown_digest,
  digest = excluded.digest
""").bindparams(bindparam("entries_session_id", type_=Uuid))


def shown_alone(entries: Iterable[Entry], shown: Collection[int] | None) -> list[Entry]:
    """Return a ledger's entries, with only these memories marked as shown; None: all."""
    return [
        each if shown is None or each.memory_id in shown else each._replace(shown_digest=None)
        for each in entries
    ]


def counted(session_id: uuid.UUID, entries: Iterable[Entry], key: DataKey) -> dict[str, Any]:
    """Return the parameters of ``COUNTED``."""
    rows = [(*entry, _digest(session_id, entry, key)) for entry in entries]
    columns = enumerate((*ENTRY, "digest"))
    arrays = {f"entries_{name}": array([row[place] for row in rows]) for place, name in columns}
    return {"entries_session_id": session_id, **arrays}


def genuine_entry(session_id: uuid.UUID, row: Sequence[Any], key: DataKey) -> Entry:
    """Return the entry of a row with the columns ``ENTRY`` and ``digest``; or RowAltered."""
    *values, digest = row
    entry = Entry(*values)
    if digest != _digest(session_id, entry, key):
        raise RowAltered(f"RefinementSession {session_id}")
    return entry


def _digest(session_id: uuid.UUID, entry: Entry, key: DataKey) -> str:
    return key.mac(f"{session_id} {' '.join(map(str, entry))}", "session_entries.digest")
