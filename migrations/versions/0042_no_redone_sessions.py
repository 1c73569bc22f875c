"""An undo can no longer be undone: who did it, and when, goes, with its constraint and index."""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

_TABLE = "refinement_sessions"


def upgrade() -> None:
    for name in ("redone_at", "redone_by_id", "redone_through"):
        op.drop_column(_TABLE, name)


def downgrade() -> None:
    op.add_column(_TABLE, sa.Column("redone_at", sa.DateTime(timezone=True)))
    op.add_column(_TABLE, sa.Column("redone_by_id", sa.BigInteger))
    op.add_column(_TABLE, sa.Column("redone_through", sa.Text))
    op.create_foreign_key(
        op.f("fk_refinement_sessions_redone_by_id_users"),
        _TABLE,
        "users",
        ["redone_by_id"],
        ["id"],
    )
    op.create_index(
        "ix_refinement_sessions_redone",
        _TABLE,
        ["agent_id", "redone_at"],
        postgresql_where=sa.text("redone_at IS NOT NULL"),
    )
