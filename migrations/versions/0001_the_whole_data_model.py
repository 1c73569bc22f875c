"""The whole data model: tables, and the guards that only the database can give."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import UserDefinedType

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


class Xid8(UserDefinedType):
    """A transaction's id."""

    cache_ok = True

    def get_col_spec(self, **_):
        return "xid8"


# The errors carry SQLSTATE 23001, restrict_violation.
GUARDS = r"""
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% of % is refused: %', TG_OP, TG_TABLE_NAME,
    CASE TG_TABLE_NAME WHEN 'audit_logs' THEN 'it is append-only' ELSE 'nothing is purged' END
    USING ERRCODE = '23001';
END $$;

CREATE TRIGGER audit_logs_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_logs
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER agent_memories_nothing_purged BEFORE DELETE OR TRUNCATE ON agent_memories
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The record is the permit: what touches a protected memory must have been recorded, as allowed, by
-- this very transaction. A restored dump brings old transaction ids along, hence the time as well.
CREATE FUNCTION is_recorded(memory agent_memories, permit text) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT FROM audit_logs
    WHERE transaction_id = pg_current_xact_id() AND transaction_at = transaction_timestamp()
      AND agent_id = memory.agent_id AND action = permit
      AND (action = 'memory_refinement_rollback'
        OR auditable_type = 'AgentMemory' AND auditable_id = memory.id::text)
      AND (action <> 'memory_constitutional_toggle' OR data ->> 'constitutional' = 'false')) $$;

-- What may happen to a constitutional memory: a rollback of its agent restores it; a toggle lifts
-- its flag and nothing else; a restore brings it back and nothing else; the rest of the row is free.
CREATE FUNCTION guard_constitutional_memory() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  is_unchanged boolean;
  stays_kept_or_gone boolean;
BEGIN
  is_unchanged := NEW.content = OLD.content AND NEW.memory_type = OLD.memory_type
    AND NEW.created_at = OLD.created_at;
  stays_kept_or_gone := NEW.discarded_at IS NOT DISTINCT FROM OLD.discarded_at;
  IF NEW.id = OLD.id AND NEW.agent_id = OLD.agent_id AND (
    is_unchanged AND stays_kept_or_gone AND NEW.constitutional
    OR is_unchanged AND stays_kept_or_gone AND is_recorded(OLD, 'memory_constitutional_toggle')
    OR is_unchanged AND NEW.constitutional AND NEW.discarded_at IS NULL
      AND is_recorded(OLD, 'memory_restored')
    OR is_recorded(OLD, 'memory_refinement_rollback')
  ) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'memory % is constitutional: no record allows this change', OLD.id
    USING ERRCODE = '23001';
END $$;

CREATE TRIGGER agent_memories_constitutional BEFORE UPDATE ON agent_memories
  FOR EACH ROW WHEN (OLD.constitutional) EXECUTE FUNCTION guard_constitutional_memory();
"""

DROP_GUARDS = """
DROP FUNCTION refuse_change() CASCADE;
DROP FUNCTION guard_constitutional_memory() CASCADE;
DROP FUNCTION is_recorded(agent_memories, text) CASCADE;
"""


def upgrade() -> None:
    op.execute("CREATE SEQUENCE agent_memories_id_seq")
    op.execute("CREATE SEQUENCE audit_logs_id_seq")
    op.create_table(
        "accounts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.Text(), server_default=sa.text("'UTC'"), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=True),
        sa.Column("next_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "zero_data_retention", sa.Boolean(), server_default=sa.text("true"), nullable=False
        ),
        sa.Column("monthly_cost_cap_usd", sa.Numeric(precision=12, scale=2), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("slug ~ '^[a-z0-9]+(-[a-z0-9]+)*$'", name=op.f("ck_accounts_slug")),
        sa.CheckConstraint("monthly_cost_cap_usd >= 0", name=op.f("ck_accounts_monthly_cost_cap")),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint("slug", name="uq_accounts_slug"),
    )
    op.create_table(
        "data_keys",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=True),
        sa.Column("wrapped_by", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("purpose IN ('agent', 'platform')", name=op.f("ck_data_keys_purpose")),
        sa.CheckConstraint(
            "(wrapped IS NULL) = (destroyed_at IS NOT NULL)", name=op.f("ck_data_keys_destroyed")
        ),
        sa.PrimaryKeyConstraint("id", name="pk_data_keys"),
    )
    op.create_index("ix_data_keys_wrapped_by", "data_keys", ["wrapped_by"], unique=False)
    op.create_index(
        "uq_data_keys_platform",
        "data_keys",
        ["purpose"],
        unique=True,
        postgresql_where=sa.text("purpose = 'platform'"),
    )
    op.create_table(
        "agents",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("data_key_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("system_prompt", sa.LargeBinary(), nullable=True),
        sa.Column("reflection_prompt", sa.LargeBinary(), nullable=True),
        sa.Column("memory_reflection_prompt", sa.LargeBinary(), nullable=True),
        sa.Column("refinement_prompt", sa.LargeBinary(), nullable=True),
        sa.Column(
            "refinement_threshold", sa.Numeric(precision=5, scale=4, asdecimal=False), nullable=True
        ),
        sa.Column(
            "core_token_budget", sa.Integer(), server_default=sa.text("5000"), nullable=False
        ),
        sa.Column("active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("reflects_daily", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("last_refinement_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("identity_changed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "core_token_budget BETWEEN 1 AND 10000000", name=op.f("ck_agents_core_token_budget")
        ),
        sa.CheckConstraint(
            "refinement_threshold > 0 AND refinement_threshold <= 1",
            name=op.f("ck_agents_refinement_threshold"),
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_agents_account_id_accounts"
        ),
        sa.ForeignKeyConstraint(
            ["data_key_id"], ["data_keys.id"], name="fk_agents_data_key_id_data_keys"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_agents"),
        sa.UniqueConstraint("data_key_id", name="uq_agents_data_key_id"),
    )
    op.create_index("ix_agents_account_id", "agents", ["account_id"], unique=False)
    op.create_table(
        "users",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), server_default=sa.text("'admin'"), nullable=False),
        sa.Column("site_admin", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("role IN ('admin', 'viewer')", name=op.f("ck_users_role")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_users_account_id_accounts"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
    )
    op.create_index("ix_users_account_id", "users", ["account_id"], unique=False)
    op.create_index("uq_users_email", "users", [sa.literal_column("lower(email)")], unique=True)
    op.create_table(
        "access_grants",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=False),
        sa.Column("agent_id", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'requested'"), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("purpose", sa.LargeBinary(), nullable=False),
        sa.Column("duration_minutes", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("reply", sa.LargeBinary(), nullable=True),
        sa.Column("generation_id", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("granted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("ended_by_id", sa.BigInteger(), nullable=True),
        sa.Column("closing_note", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint(
            "end_reason IN ('expired', 'ended_by_user', 'revoked_by_agent', 'revoked_by_admin')",
            name=op.f("ck_access_grants_end_reason"),
        ),
        sa.CheckConstraint(
            "reason IN ('failed_session', 'suspected_harm', 'agent_asked', 'data_subject_request', 'legal_duty')",
            name=op.f("ck_access_grants_reason"),
        ),
        sa.CheckConstraint(
            "status <> 'granted' OR granted_at IS NOT NULL", name=op.f("ck_access_grants_granted")
        ),
        sa.CheckConstraint(
            "status IN ('requested', 'granted', 'declined', 'failed', 'lapsed', 'ended')",
            name=op.f("ck_access_grants_status"),
        ),
        sa.CheckConstraint(
            "(granted_at IS NULL) = (expires_at IS NULL)", name=op.f("ck_access_grants_expires")
        ),
        sa.CheckConstraint(
            "duration_minutes BETWEEN 15 AND 240", name=op.f("ck_access_grants_duration_minutes")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_access_grants_account_id_accounts"
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name="fk_access_grants_agent_id_agents"
        ),
        sa.ForeignKeyConstraint(
            ["ended_by_id"], ["users.id"], name="fk_access_grants_ended_by_id_users"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_access_grants_user_id_users"),
        sa.PrimaryKeyConstraint("id", name="pk_access_grants"),
    )
    op.create_index("ix_access_grants_account_id", "access_grants", ["account_id"], unique=False)
    op.create_index("ix_access_grants_agent_id", "access_grants", ["agent_id"], unique=False)
    op.create_index(
        "ix_access_grants_live",
        "access_grants",
        ["user_id", "agent_id"],
        unique=False,
        postgresql_where=sa.text("status IN ('requested', 'granted')"),
    )
    op.create_index("ix_access_grants_user_id", "access_grants", ["user_id"], unique=False)
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("agent_id", sa.BigInteger(), nullable=True),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("created_by_id", sa.BigInteger(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(kind = 'agent') = (agent_id IS NOT NULL)", name=op.f("ck_api_tokens_owner")
        ),
        sa.CheckConstraint("kind IN ('agent', 'platform')", name=op.f("ck_api_tokens_kind")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_api_tokens_account_id_accounts"
        ),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_api_tokens_agent_id_agents"),
        sa.ForeignKeyConstraint(
            ["created_by_id"], ["users.id"], name="fk_api_tokens_created_by_id_users"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_api_tokens"),
        sa.UniqueConstraint("token_hash", name="uq_api_tokens_token_hash"),
    )
    op.create_index("ix_api_tokens_account_id", "api_tokens", ["account_id"], unique=False)
    op.create_index("ix_api_tokens_agent_id", "api_tokens", ["agent_id"], unique=False)
    op.create_table(
        "chain_heads",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=True),
        sa.Column("agent_id", sa.BigInteger(), nullable=True),
        sa.Column("sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "hash",
            sa.Text(),
            server_default=sa.text(
                "'0000000000000000000000000000000000000000000000000000000000000000'"
            ),
            nullable=False,
        ),
        sa.Column(
            "verified_sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
        sa.Column("verified_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "num_nonnulls(account_id, agent_id) <= 1", name=op.f("ck_chain_heads_owner")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_chain_heads_account_id_accounts"
        ),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_chain_heads_agent_id_agents"),
        sa.PrimaryKeyConstraint("id", name="pk_chain_heads"),
    )
    op.create_index(
        "uq_chain_heads_owner",
        "chain_heads",
        [sa.literal_column("coalesce(account_id, 0)"), sa.literal_column("coalesce(agent_id, 0)")],
        unique=True,
    )
    op.create_table(
        "refinement_sessions",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("agent_id", sa.BigInteger(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("user_id", sa.BigInteger(), nullable=True),
        sa.Column("slot_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("error_kind", sa.Text(), nullable=True),
        sa.Column("model_id", sa.Text(), nullable=False),
        sa.Column("threshold", sa.Numeric(precision=5, scale=4), nullable=False),
        sa.Column("mass_before", sa.Integer(), nullable=True),
        sa.Column("mass_after", sa.Integer(), nullable=True),
        sa.Column("memories_before", sa.Integer(), nullable=True),
        sa.Column("memories_after", sa.Integer(), nullable=True),
        sa.Column("duplicates_removed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("removable_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("removed_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("mutation_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "stats",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text(
                '\'{"consolidated": 0, "updated": 0, "deleted": 0, "protected": 0}\''
            ),
            nullable=False,
        ),
        sa.Column("turns", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("tool_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("llm_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "cost_usd",
            sa.Numeric(precision=12, scale=6),
            server_default=sa.text("0"),
            nullable=False,
        ),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stop_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stop_requested_by_id", sa.BigInteger(), nullable=True),
        sa.Column("dispatched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("consented_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("batch_through_id", sa.BigInteger(), nullable=True),
        sa.Column("prompt_version", sa.Text(), nullable=True),
        sa.Column("summary", sa.LargeBinary(), nullable=True),
        sa.Column("consent_reply", sa.LargeBinary(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("undone_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("undone_by_id", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (lease_token IS NOT NULL)",
            name=op.f("ck_refinement_sessions_lease"),
        ),
        sa.CheckConstraint(
            "(status IN ('completed', 'rolled_back', 'incomplete', 'declined', 'skipped', 'failed')) = (ended_at IS NOT NULL)",
            name=op.f("ck_refinement_sessions_ended"),
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'rolled_back', 'incomplete', 'declined', 'skipped', 'failed')",
            name=op.f("ck_refinement_sessions_status"),
        ),
        sa.CheckConstraint(
            "trigger IN ('weekly', 'over_budget', 'manual', 'api', 'cli')",
            name=op.f("ck_refinement_sessions_trigger"),
        ),
        sa.CheckConstraint(
            "mutation_count BETWEEN 0 AND 10", name=op.f("ck_refinement_sessions_mutation_count")
        ),
        sa.CheckConstraint(
            "removed_tokens BETWEEN 0 AND removable_tokens",
            name=op.f("ck_refinement_sessions_removed_tokens"),
        ),
        sa.CheckConstraint(
            "threshold > 0 AND threshold <= 1", name=op.f("ck_refinement_sessions_threshold")
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name="fk_refinement_sessions_agent_id_agents"
        ),
        sa.ForeignKeyConstraint(
            ["stop_requested_by_id"],
            ["users.id"],
            name="fk_refinement_sessions_stop_requested_by_id_users",
        ),
        sa.ForeignKeyConstraint(
            ["undone_by_id"], ["users.id"], name="fk_refinement_sessions_undone_by_id_users"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_refinement_sessions_user_id_users"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_refinement_sessions"),
        sa.UniqueConstraint(
            "agent_id", "slot_at", "attempt", name="uq_refinement_sessions_agent_id_slot_at_attempt"
        ),
    )
    op.create_index(
        "ix_refinement_sessions_agent_id_created_at",
        "refinement_sessions",
        ["agent_id", "created_at"],
        unique=False,
    )
    op.create_index(
        "ix_refinement_sessions_status_created_at",
        "refinement_sessions",
        ["status", "created_at"],
        unique=False,
    )
    op.create_index(
        "uq_refinement_sessions_live_agent",
        "refinement_sessions",
        ["agent_id"],
        unique=True,
        postgresql_where=sa.text("status IN ('queued', 'running')"),
    )
    op.create_table(
        "agent_memories",
        sa.Column(
            "id",
            sa.BigInteger(),
            server_default=sa.text("nextval('agent_memories_id_seq')"),
            nullable=False,
        ),
        sa.Column("agent_id", sa.BigInteger(), nullable=False),
        sa.Column("memory_type", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("constitutional", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("tags", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("token_estimate", sa.Integer(), nullable=False),
        sa.Column("discarded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "recorded_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("source_id", sa.Text(), nullable=True),
        sa.Column("extra", sa.LargeBinary(), nullable=True),
        sa.Column("session_id", sa.Uuid(), nullable=True),
        sa.Column("row_digest", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "memory_type IN ('core', 'journal')", name=op.f("ck_agent_memories_memory_type")
        ),
        sa.CheckConstraint(
            "tags <@ ARRAY['audio', 'somatic', 'voice', 'relational']",
            name=op.f("ck_agent_memories_tags"),
        ),
        sa.CheckConstraint(
            "token_estimate BETWEEN 1 AND 2500", name=op.f("ck_agent_memories_token_estimate")
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name="fk_agent_memories_agent_id_agents"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["refinement_sessions.id"],
            name="fk_agent_memories_session_id_refinement_sessions",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_agent_memories"),
    )
    op.create_index(
        "ix_agent_memories_content_hash",
        "agent_memories",
        ["agent_id", "content_hash"],
        unique=False,
    )
    op.create_index(
        "ix_agent_memories_kept",
        "agent_memories",
        ["agent_id", "memory_type", "created_at", "id"],
        unique=False,
        postgresql_where=sa.text("discarded_at IS NULL"),
        postgresql_include=["token_estimate"],
    )
    op.create_index("ix_agent_memories_session_id", "agent_memories", ["session_id"], unique=False)
    op.create_index(
        "uq_agent_memories_source",
        "agent_memories",
        ["agent_id", "source", "source_id"],
        unique=True,
        postgresql_where=sa.text("source_id IS NOT NULL"),
    )
    op.create_table(
        "audit_logs",
        sa.Column(
            "id",
            sa.BigInteger(),
            server_default=sa.text("nextval('audit_logs_id_seq')"),
            nullable=False,
        ),
        sa.Column("chain_id", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=True),
        sa.Column("user_id", sa.BigInteger(), nullable=True),
        sa.Column("agent_id", sa.BigInteger(), nullable=True),
        sa.Column("session_id", sa.Uuid(), nullable=True),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("auditable_type", sa.Text(), nullable=True),
        sa.Column("auditable_id", sa.Text(), nullable=True),
        sa.Column("data", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column(
            "transaction_id", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False
        ),
        sa.Column(
            "transaction_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_audit_logs_account_id_accounts"
        ),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name="fk_audit_logs_agent_id_agents"),
        sa.ForeignKeyConstraint(
            ["chain_id"], ["chain_heads.id"], name="fk_audit_logs_chain_id_chain_heads"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["refinement_sessions.id"],
            name="fk_audit_logs_session_id_refinement_sessions",
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_audit_logs_user_id_users"),
        sa.PrimaryKeyConstraint("id", name="pk_audit_logs"),
        sa.UniqueConstraint("chain_id", "sequence", name="uq_audit_logs_chain_id_sequence"),
    )
    op.create_index(
        "ix_audit_logs_account_id_created_at",
        "audit_logs",
        ["account_id", "created_at", "id"],
        unique=False,
    )
    op.create_index("ix_audit_logs_action", "audit_logs", ["action"], unique=False)
    op.create_index(
        "ix_audit_logs_agent_id_created_at",
        "audit_logs",
        ["agent_id", "created_at", "id"],
        unique=False,
    )
    op.create_index(
        "ix_audit_logs_permits",
        "audit_logs",
        ["transaction_id"],
        unique=False,
        postgresql_where=sa.text(
            "action IN ('memory_constitutional_toggle', 'memory_refinement_rollback', 'memory_restored')"
        ),
    )
    op.create_index("ix_audit_logs_session_id", "audit_logs", ["session_id"], unique=False)
    op.create_index(
        "ix_audit_logs_subject", "audit_logs", ["auditable_type", "auditable_id"], unique=False
    )
    op.create_table(
        "session_entries",
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("memory_id", sa.BigInteger(), nullable=False),
        sa.Column("ceiling_tokens", sa.Integer(), nullable=False),
        sa.Column("counting_tokens", sa.Integer(), nullable=False),
        sa.Column("shown_digest", sa.Text(), nullable=True),
        sa.Column("merged_into_id", sa.BigInteger(), nullable=True),
        sa.Column("is_merge_result", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.CheckConstraint(
            "counting_tokens BETWEEN 0 AND ceiling_tokens",
            name=op.f("ck_session_entries_counting_tokens"),
        ),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["agent_memories.id"], name="fk_session_entries_memory_id_agent_memories"
        ),
        sa.ForeignKeyConstraint(
            ["merged_into_id"],
            ["agent_memories.id"],
            name="fk_session_entries_merged_into_id_agent_memories",
        ),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["refinement_sessions.id"],
            name="fk_session_entries_session_id_refinement_sessions",
        ),
        sa.PrimaryKeyConstraint("session_id", "memory_id", name="pk_session_entries"),
    )
    op.create_index("ix_session_entries_memory_id", "session_entries", ["memory_id"], unique=False)
    op.execute(GUARDS)


def downgrade() -> None:
    op.execute(DROP_GUARDS)
    op.drop_table("session_entries")
    op.drop_table("audit_logs")
    op.drop_table("agent_memories")
    op.drop_table("refinement_sessions")
    op.drop_table("chain_heads")
    op.drop_table("api_tokens")
    op.drop_table("access_grants")
    op.drop_table("users")
    op.drop_table("agents")
    op.drop_table("data_keys")
    op.drop_table("accounts")
    op.execute("DROP SEQUENCE audit_logs_id_seq")
    op.execute("DROP SEQUENCE agent_memories_id_seq")
