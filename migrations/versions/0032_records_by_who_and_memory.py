"""Records are found by account and action, by who acted, and by memory.

Building the last of these reads the data of every record about memories once.
"""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

_INDEXES = {
    "ix_audit_logs_account_id_action_created_at": "(account_id, action, created_at, id)",
    "ix_audit_logs_user_id_created_at": "(user_id, created_at, id) WHERE user_id IS NOT NULL",
    "ix_audit_logs_by_created_at": "(by, created_at, id) WHERE by IS NOT NULL",
    "ix_audit_logs_account_id_by_created_at": (
        "(account_id, by, created_at, id) WHERE by IS NOT NULL"
    ),
    "ix_audit_logs_memory_ids": (
        "USING gin ((jsonb_path_query_array(data::jsonb, '$.memories[*].id') || "
        "jsonb_path_query_array(data::jsonb, '$.ids[*]'))) "
        "WHERE mass_after IS NOT NULL OR action = 'memory_access_viewed'"
    ),
}


def upgrade() -> None:
    for name, columns in _INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON audit_logs {columns}")


def downgrade() -> None:
    for name in _INDEXES:
        op.execute(f"DROP INDEX {name}")
