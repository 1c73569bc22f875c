"""Tokens know the platform token that minted them, so that they are revoked together with it."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_tokens", sa.Column("minted_by_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(
        op.f("fk_api_tokens_minted_by_id_api_tokens"),
        "api_tokens",
        "api_tokens",
        ["minted_by_id"],
        ["id"],
    )
    op.create_index(op.f("ix_api_tokens_minted_by_id"), "api_tokens", ["minted_by_id"])
    # the records have known it all along
    op.execute(
        "UPDATE api_tokens SET minted_by_id = (audit_logs.data->>'token_id')::bigint "
        "FROM audit_logs WHERE audit_logs.action = 'token_minted' "
        "AND audit_logs.auditable_type = 'ApiToken' "
        "AND audit_logs.auditable_id = api_tokens.id::text "
        "AND audit_logs.data->>'token_id' IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_column("api_tokens", "minted_by_id")
