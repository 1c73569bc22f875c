"""Guesses and refusals are counted in tallies; an invited address may be in use elsewhere."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tallies",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_tallies")),
    )
    op.create_index(op.f("ix_tallies_ends_at"), "tallies", ["ends_at"])
    op.drop_table("sign_in_failures")
    op.drop_index("uq_users_email", "users")
    email = sa.literal_column("lower(email)")
    op.create_index("uq_users_email", "users", [email, "account_id"], unique=True)
    op.create_index(
        "uq_users_email_joined",
        "users",
        [email],
        unique=True,
        postgresql_where=sa.text("password_hash IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("uq_users_email_joined", "users")
    op.drop_index("uq_users_email", "users")
    op.create_index("uq_users_email", "users", [sa.literal_column("lower(email)")], unique=True)
    op.create_table(
        "sign_in_failures",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("email_hash", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sign_in_failures"),
    )
    op.create_index("ix_sign_in_failures_email_hash_at", "sign_in_failures", ["email_hash", "at"])
    op.create_index("ix_sign_in_failures_address_at", "sign_in_failures", ["address", "at"])
    op.drop_table("tallies")
