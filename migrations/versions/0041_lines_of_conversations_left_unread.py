"""How many lines of a conversation are unread: another attempt begins with the first of them."""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "memory_tasks",
        sa.Column("lines_unread", sa.Integer(), server_default=sa.text("0"), nullable=False),
    )


def downgrade() -> None:
    op.drop_column("memory_tasks", "lines_unread")
