"""Runs count the calls whose cost is unknown, and name another model that answered."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_RUNS = ("refinement_sessions", "memory_tasks", "access_grants")


def upgrade() -> None:
    for table in _RUNS:
        count = sa.Column(
            "unpriced_calls", sa.Integer(), server_default=sa.text("0"), nullable=False
        )
        op.add_column(table, count)
        op.add_column(table, sa.Column("answered_model_id", sa.Text()))


def downgrade() -> None:
    for table in _RUNS:
        op.drop_column(table, "answered_model_id")
        op.drop_column(table, "unpriced_calls")
