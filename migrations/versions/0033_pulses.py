"""What each tick of the last day found: how long queue and clock had been waiting, who worked."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pulses",
        sa.Column("minute", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("pause_seconds", sa.Integer(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("waiting_seconds", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("workers", sa.Integer()),
        sa.Column("silent_workers", sa.Integer()),
        sa.PrimaryKeyConstraint("minute", name=op.f("pk_pulses")),
        sa.CheckConstraint("minute BETWEEN 0 AND 1439", name=op.f("ck_pulses_minute")),
    )


def downgrade() -> None:
    op.drop_table("pulses")
