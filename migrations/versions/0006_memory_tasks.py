"""Reflections, and extractions of conversations: one table for both."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_tasks",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("agent_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("slot_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("error_kind", sa.Text(), nullable=True),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("conversation", sa.LargeBinary(), nullable=True),
        sa.Column("memories_kept", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tool_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("llm_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cost_usd", sa.Numeric(12, 6), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_version", sa.Text(), nullable=True),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("dispatched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "due_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "kind IN ('reflection', 'extraction')", name=op.f("ck_memory_tasks_kind")
        ),
        sa.CheckConstraint(
            "trigger IN ('daily', 'api', 'cli')", name=op.f("ck_memory_tasks_trigger")
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'incomplete', 'skipped', 'failed')",
            name=op.f("ck_memory_tasks_status"),
        ),
        sa.CheckConstraint(
            "memories_kept BETWEEN 0 AND 20", name=op.f("ck_memory_tasks_memories_kept")
        ),
        sa.CheckConstraint(
            "(status = 'running') = (lease_token IS NOT NULL)", name=op.f("ck_memory_tasks_lease")
        ),
        sa.CheckConstraint(
            "(status IN ('completed', 'incomplete', 'skipped', 'failed')) = (ended_at IS NOT NULL)",
            name=op.f("ck_memory_tasks_ended"),
        ),
        sa.CheckConstraint(
            "(conversation IS NOT NULL) = (kind = 'extraction' AND status IN ('queued', 'running'))",
            name=op.f("ck_memory_tasks_conversation"),
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_memory_tasks_agent_id_agents")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memory_tasks")),
    )
    op.create_index(
        "uq_memory_tasks_running_agent",
        "memory_tasks",
        ["agent_id"],
        unique=True,
        postgresql_where=sa.text("status = 'running'"),
    )
    op.create_index(
        "uq_memory_tasks_live_reflection",
        "memory_tasks",
        ["agent_id"],
        unique=True,
        postgresql_where=sa.text("kind = 'reflection' AND status IN ('queued', 'running')"),
    )
    op.create_index(
        "ix_memory_tasks_agent_id_created_at", "memory_tasks", ["agent_id", "created_at"]
    )
    op.create_index("ix_memory_tasks_status_created_at", "memory_tasks", ["status", "created_at"])


def downgrade() -> None:
    op.drop_table("memory_tasks")
