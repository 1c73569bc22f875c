"""Sweeps are requests that the clock goes on with, and no longer one long request to a page."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_OPEN = "CREATE UNIQUE INDEX uq_sweeps_open_account ON sweeps (account_id) WHERE ended_at IS NULL"


def upgrade() -> None:
    op.create_table(
        "sweeps",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("after_id", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "held_ids",
            sa.ARRAY(sa.BigInteger()),
            server_default=sa.text("'{}'"),
            nullable=False,
        ),
        sa.Column("queued", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("not_queued", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("row_digest", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_sweeps"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_sweeps_account_id_accounts"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_sweeps_user_id_users"),
    )
    op.create_index("ix_sweeps_account_id", "sweeps", ["account_id"])
    op.execute(_OPEN)


def downgrade() -> None:
    op.drop_table("sweeps")
