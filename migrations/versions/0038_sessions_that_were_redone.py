"""Redone sessions are found by when they were redone: what went again counts from then on."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

_INDEX = "ix_refinement_sessions_redone"


def upgrade() -> None:
    op.create_index(
        _INDEX,
        "refinement_sessions",
        ["agent_id", "redone_at"],
        postgresql_where=sa.text("redone_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index(_INDEX, table_name="refinement_sessions")
