"""Lists of sessions and records are read in the order of time, from an index that has it."""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_SESSIONS = "ix_refinement_sessions_created_at"
_RECORDS = "ix_audit_logs_created_at"
_BY_ACTION = "ix_audit_logs_action_created_at"
_OLD_BY_ACTION = "ix_audit_logs_action"


def upgrade() -> None:
    op.execute(f"CREATE INDEX {_SESSIONS} ON refinement_sessions (created_at DESC, id)")
    op.create_index(_RECORDS, "audit_logs", ["created_at", "id"])
    op.create_index(_BY_ACTION, "audit_logs", ["action", "created_at", "id"])
    op.drop_index(_OLD_BY_ACTION, "audit_logs")


def downgrade() -> None:
    op.create_index(_OLD_BY_ACTION, "audit_logs", ["action"])
    op.drop_index(_BY_ACTION, "audit_logs")
    op.drop_index(_RECORDS, "audit_logs")
    op.drop_index(_SESSIONS, "refinement_sessions")
