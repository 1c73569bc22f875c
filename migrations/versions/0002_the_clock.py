"""The clock's memory, and how a session was undone."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "clock_marks",
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("after_id", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("event", name="pk_clock_marks"),
    )
    op.add_column("refinement_sessions", sa.Column("undone_through", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("refinement_sessions", "undone_through")
    op.drop_table("clock_marks")
