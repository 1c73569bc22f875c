"""Keyed digests on the rows that decide who may do what, and on the ends of chains."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_ATTESTED = (
    "accounts",
    "users",
    "invitations",
    "sign_ins",
    "agents",
    "api_tokens",
    "access_grants",
    "refinement_sessions",
)


def upgrade() -> None:
    for table in _ATTESTED:
        op.add_column(table, sa.Column("row_digest", sa.Text()))
    op.add_column("audit_logs", sa.Column("rows", sa.JSON()))
    op.add_column("chain_heads", sa.Column("digest", sa.Text()))
    op.add_column(
        "chain_heads",
        sa.Column("verified_memories", sa.Integer(), server_default=sa.text("0"), nullable=False),
    )


def downgrade() -> None:
    op.drop_column("chain_heads", "verified_memories")
    op.drop_column("chain_heads", "digest")
    op.drop_column("audit_logs", "rows")
    for table in reversed(_ATTESTED):
        op.drop_column(table, "row_digest")
