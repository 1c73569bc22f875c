"""Who undid the undo of a session, and when: what it removed counts again from then on."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("refinement_sessions", sa.Column("redone_at", sa.DateTime(timezone=True)))
    op.add_column("refinement_sessions", sa.Column("redone_by_id", sa.BigInteger))
    op.add_column("refinement_sessions", sa.Column("redone_through", sa.Text))
    op.create_foreign_key(
        op.f("fk_refinement_sessions_redone_by_id_users"),
        "refinement_sessions",
        "users",
        ["redone_by_id"],
        ["id"],
    )


def downgrade() -> None:
    op.drop_column("refinement_sessions", "redone_through")
    op.drop_column("refinement_sessions", "redone_by_id")
    op.drop_column("refinement_sessions", "redone_at")
