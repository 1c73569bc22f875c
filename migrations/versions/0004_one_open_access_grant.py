"""One open request or grant for each user and agent."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_access_grants_live", table_name="access_grants")
    op.create_index(
        "uq_access_grants_open",
        "access_grants",
        ["user_id", "agent_id"],
        unique=True,
        postgresql_where=sa.text("status IN ('requested', 'granted')"),
    )
    # what the tick looks for, every minute
    op.create_index(
        "ix_access_grants_open_since",
        "access_grants",
        ["status", "created_at"],
        postgresql_where=sa.text("status IN ('requested', 'granted')"),
    )


def downgrade() -> None:
    op.drop_index("ix_access_grants_open_since", table_name="access_grants")
    op.drop_index("uq_access_grants_open", table_name="access_grants")
    op.create_index(
        "ix_access_grants_live",
        "access_grants",
        ["user_id", "agent_id"],
        unique=False,
        postgresql_where=sa.text("status IN ('requested', 'granted')"),
    )
