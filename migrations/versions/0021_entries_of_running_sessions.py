"""What a session counts for each memory goes when it ends: nobody reads it any more."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_OF_ENDED = """
DELETE FROM session_entries USING refinement_sessions AS session
WHERE session.id = session_id AND session.ended_at IS NOT NULL
"""
_MERGED_INTO = "fk_session_entries_merged_into_id_agent_memories"


def upgrade() -> None:
    op.execute(_OF_ENDED)
    op.drop_column("session_entries", "merged_into_id")
    op.drop_column("session_entries", "is_merge_result")


def downgrade() -> None:
    op.add_column(
        "session_entries",
        sa.Column("is_merge_result", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    op.add_column("session_entries", sa.Column("merged_into_id", sa.BigInteger()))
    op.create_foreign_key(
        _MERGED_INTO, "session_entries", "agent_memories", ["merged_into_id"], ["id"]
    )
