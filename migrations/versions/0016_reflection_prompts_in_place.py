"""Whether each of an agent's two reflection prompts is in its own column.

Earlier versions kept them in each other's. ``refine db upgrade``, which holds the keys, moves them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("prompts_in_place", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("agents", "prompts_in_place")
