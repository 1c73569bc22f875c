"""Sessions count how many memories their agent was shown."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("refinement_sessions", sa.Column("shown_memories", sa.Integer()))


def downgrade() -> None:
    op.drop_column("refinement_sessions", "shown_memories")
