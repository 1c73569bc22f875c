"""Access by time, and an agent's discarded memories, are found without reading the whole table."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

_ACCESS, _DISCARDED = "ix_access_grants_created_at", "ix_agent_memories_discarded"


def upgrade() -> None:
    op.create_index(_ACCESS, "access_grants", [sa.text("created_at DESC"), "id"])
    op.create_index(
        _DISCARDED,
        "agent_memories",
        ["agent_id", "created_at", "id"],
        postgresql_where=sa.text("discarded_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index(_DISCARDED, table_name="agent_memories")
    op.drop_index(_ACCESS, table_name="access_grants")
