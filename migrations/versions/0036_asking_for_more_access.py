"""A user who may read an agent's memories may ask for more: one open request beside one grant."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_INDEX = "uq_access_grants_open"


def upgrade() -> None:
    _replace(["user_id", "agent_id", "status"])


def downgrade() -> None:
    op.execute(
        "UPDATE access_grants SET status = 'lapsed', ended_at = now(), lease_token = NULL "
        "WHERE status = 'requested' AND EXISTS (SELECT FROM access_grants AS other "
        "WHERE other.user_id = access_grants.user_id AND other.agent_id = access_grants.agent_id "
        "AND other.status = 'granted')"
    )
    _replace(["user_id", "agent_id"])


def _replace(columns: list[str]) -> None:
    op.drop_index(_INDEX, table_name="access_grants")
    op.create_index(
        _INDEX,
        "access_grants",
        columns,
        unique=True,
        postgresql_where=sa.text("status IN ('requested', 'granted')"),
    )
