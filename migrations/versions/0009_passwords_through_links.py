"""Who issued a link, when a password was set through one, and when one was last confirmed."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("invitations", sa.Column("issued_by_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(
        op.f("fk_invitations_issued_by_id_users"), "invitations", "users", ["issued_by_id"], ["id"]
    )
    op.add_column("users", sa.Column("password_linked_at", sa.DateTime(timezone=True)))
    op.add_column("sign_ins", sa.Column("confirmed_at", sa.DateTime(timezone=True)))
    op.execute("UPDATE sign_ins SET confirmed_at = created_at")
    op.alter_column("sign_ins", "confirmed_at", nullable=False, server_default=sa.text("now()"))


def downgrade() -> None:
    op.drop_column("sign_ins", "confirmed_at")
    op.drop_column("users", "password_linked_at")
    op.drop_column("invitations", "issued_by_id")
