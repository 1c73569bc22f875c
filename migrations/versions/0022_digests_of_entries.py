"""Entries of running sessions carry a digest, so that none can be changed unnoticed."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("session_entries", sa.Column("digest", sa.Text()))


def downgrade() -> None:
    op.drop_column("session_entries", "digest")
