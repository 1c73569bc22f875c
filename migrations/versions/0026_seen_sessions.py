"""Who acknowledged a session that needed attention."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("refinement_sessions", sa.Column("seen_at", sa.DateTime(timezone=True)))
    op.add_column("refinement_sessions", sa.Column("seen_by_id", sa.BigInteger))
    op.create_foreign_key(
        op.f("fk_refinement_sessions_seen_by_id_users"),
        "refinement_sessions",
        "users",
        ["seen_by_id"],
        ["id"],
    )


def downgrade() -> None:
    op.drop_column("refinement_sessions", "seen_by_id")
    op.drop_column("refinement_sessions", "seen_at")
