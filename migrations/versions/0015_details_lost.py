"""Sessions count the details that their edits lost."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    count = sa.Column("details_lost", sa.Integer(), server_default=sa.text("0"), nullable=False)
    op.add_column("refinement_sessions", count)
    op.create_check_constraint(
        op.f("ck_refinement_sessions_details_lost"), "refinement_sessions", "details_lost >= 0"
    )


def downgrade() -> None:
    op.drop_column("refinement_sessions", "details_lost")
