"""Up to where each chain was verified; whether a verification went on from there."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "chain_checkpoints",
        sa.Column("chain_id", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("left_digests", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["chain_id"], ["chain_heads.id"], name=op.f("fk_chain_checkpoints_chain_id_chain_heads")
        ),
        sa.PrimaryKeyConstraint("chain_id", name=op.f("pk_chain_checkpoints")),
    )
    op.add_column(
        "verifications",
        sa.Column("goes_on", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )


def downgrade() -> None:
    op.drop_column("verifications", "goes_on")
    op.drop_table("chain_checkpoints")
