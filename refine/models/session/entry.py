"""What a session counts for each memory of its ledger."""

import uuid

from sqlalchemy import CheckConstraint, ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from refine.extensions import Base
from refine.models.columns import No


class SessionEntry(Base):
    """One memory of a session's ledger, or a merge result that the session made.

    ``ceiling_tokens`` is what the memory had at the snapshot (a merge result: what its sources
    still counted), ``counting_tokens`` what it counts now, at most its ceiling. ``shown_digest`` is
    the state that the agent saw last; None where it saw none, and then it may not change it.
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
    merged_into_id: Mapped[int | None] = mapped_column(ForeignKey("agent_memories.id"))
    is_merge_result: Mapped[No]
