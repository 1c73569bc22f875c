"""Sealed text is bound to its row, and a wrapped key to its owner.

What is there is bound by ``refine db upgrade``, which holds the keys; a record permits it for
constitutional memories, as long as nothing changes but the sealed bytes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_PERMITS = "'memory_constitutional_toggle', 'memory_refinement_rollback', 'memory_restored'"
_OF_THE_LEDGER = "'memory_refinement_rollback'"
_RESEALED = "'memories_resealed'"

_IS_RECORDED = """
CREATE OR REPLACE FUNCTION is_recorded(memory agent_memories, permit text) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT FROM audit_logs
    WHERE transaction_id = pg_current_xact_id() AND transaction_at = transaction_timestamp()
      AND agent_id = memory.agent_id AND action = permit
      AND (action IN ({of_the_ledger})
        OR auditable_type = 'AgentMemory' AND auditable_id = memory.id::text)
      AND (action <> 'memory_constitutional_toggle' OR data ->> 'constitutional' = 'false')) $$
"""

_GUARD = """
CREATE OR REPLACE FUNCTION guard_constitutional_memory() RETURNS trigger LANGUAGE plpgsql AS $$
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
    {resealing}
  ) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'memory % is constitutional: no record allows this change', OLD.id
    USING ERRCODE = '23001';
END $$
"""

_RESEALING = """
    OR to_jsonb(NEW) - ARRAY['content', 'extra', 'row_digest']
        = to_jsonb(OLD) - ARRAY['content', 'extra', 'row_digest']
      AND get_byte(OLD.content, 0) = 1 AND get_byte(NEW.content, 0) = 2
      AND is_recorded(OLD, 'memories_resealed')
"""


_NOT_OF_OTHER_SCHEMAS = """
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION {function} SET search_path = %I, pg_temp', current_schema());
END $$
"""


def upgrade() -> None:
    op.add_column(
        "agents",
        sa.Column("is_bound", sa.Boolean(), server_default=sa.text("false"), nullable=False),
    )
    _index_permits(f"{_PERMITS}, {_RESEALED}")
    _replace_guard(f"{_OF_THE_LEDGER}, {_RESEALED}", _RESEALING)


def downgrade() -> None:
    _replace_guard(_OF_THE_LEDGER, "")
    _index_permits(_PERMITS)
    op.drop_column("agents", "is_bound")


def _index_permits(actions: str) -> None:
    op.drop_index("ix_audit_logs_permits", "audit_logs")
    op.create_index(
        "ix_audit_logs_permits",
        "audit_logs",
        ["transaction_id"],
        postgresql_where=sa.text(f"action IN ({actions})"),
    )


def _replace_guard(of_the_ledger: str, resealing: str) -> None:
    op.execute(_IS_RECORDED.format(of_the_ledger=of_the_ledger))
    op.execute(_GUARD.format(resealing=resealing))
    for function in ("is_recorded(agent_memories, text)", "guard_constitutional_memory()"):
        op.execute(_NOT_OF_OTHER_SCHEMAS.format(function=function))
