"""A user may choose the time zone of the pages that they see."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users", sa.Column("time_zone", sa.Text))


def downgrade() -> None:
    op.drop_column("users", "time_zone")
