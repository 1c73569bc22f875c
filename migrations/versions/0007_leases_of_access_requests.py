"""Requests for access are held by a lease and count what they cost, as sessions and tasks do."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_COUNTS = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens")


def upgrade() -> None:
    for name in _COUNTS:
        op.add_column(
            "access_grants",
            sa.Column(name, sa.Integer(), server_default=sa.text("0"), nullable=False),
        )
    op.add_column(
        "access_grants",
        sa.Column("cost_usd", sa.Numeric(12, 6), server_default=sa.text("0"), nullable=False),
    )
    op.add_column("access_grants", sa.Column("error_kind", sa.Text(), nullable=True))
    op.add_column("access_grants", sa.Column("lease_token", sa.Uuid(), nullable=True))
    for name in ("heartbeat_at", "dispatched_at"):
        op.add_column("access_grants", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.create_check_constraint(
        op.f("ck_access_grants_lease"),
        "access_grants",
        "lease_token IS NULL OR status = 'requested'",
    )


def downgrade() -> None:
    op.drop_constraint(op.f("ck_access_grants_lease"), "access_grants")
    for name in (
        "dispatched_at",
        "heartbeat_at",
        "lease_token",
        "error_kind",
        "cost_usd",
        *reversed(_COUNTS),
    ):
        op.drop_column("access_grants", name)
