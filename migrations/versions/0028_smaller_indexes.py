"""Indexes hold the rows that are looked up through them, and no others."""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_INDEXES = {
    "ix_agent_memories_content_hash": (
        "agent_memories (agent_id, content_hash)",
        "memory_type = 'core'",
    ),
    "ix_agent_memories_session_id": ("agent_memories (session_id)", "session_id IS NOT NULL"),
    "ix_audit_logs_session_id": ("audit_logs (session_id)", "session_id IS NOT NULL"),
    "ix_audit_logs_subject": (
        "audit_logs (auditable_type, auditable_id)",
        "auditable_type <> 'AgentMemory'",
    ),
}


def upgrade() -> None:
    for name, (columns, condition) in _INDEXES.items():
        op.execute(f"DROP INDEX {name}")
        op.execute(f"CREATE INDEX {name} ON {columns} WHERE {condition}")


def downgrade() -> None:
    for name, (columns, _) in _INDEXES.items():
        op.execute(f"DROP INDEX {name}")
        op.execute(f"CREATE INDEX {name} ON {columns}")
