"""What each verification found."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    count = sa.text("0")
    op.create_table(
        "verifications",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("begun_by", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("after_chain_id", sa.BigInteger(), server_default=count, nullable=False),
        sa.Column("chains", sa.Integer(), server_default=count, nullable=False),
        sa.Column("records", sa.Integer(), server_default=count, nullable=False),
        sa.Column("memories", sa.Integer(), server_default=count, nullable=False),
        sa.Column("problems", sa.Integer(), server_default=count, nullable=False),
        sa.Column("first_problem", sa.Text()),
        sa.Column("seen_at", sa.DateTime(timezone=True)),
        sa.Column("seen_by_id", sa.BigInteger()),
        sa.Column("row_digest", sa.Text()),
        sa.ForeignKeyConstraint(
            ["seen_by_id"], ["users.id"], name=op.f("fk_verifications_seen_by_id_users")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verifications")),
    )


def downgrade() -> None:
    op.drop_table("verifications")
