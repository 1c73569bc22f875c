"""What pages and metrics read grows no more with the number of agents and runs.

Agents are listed by name from an index, and counted by state from others. ``over_budget`` is a
column, because an index that named the tokens would have to be written with every change of a
memory. Ended runs are added up by triggers. Each connection adds to a row of its own, as far as
there are enough, so that runs that end at the same time do not wait for each other.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_OVER_BUDGET = (
    "over_budget boolean NOT NULL GENERATED ALWAYS AS (core_tokens > core_token_budget) STORED"
)
_INDEXES = {
    "ix_agents_name": "(lower(name), id)",
    "ix_agents_account_id_name": "(account_id, lower(name), id)",
    "ix_agents_over_budget": "(account_id) WHERE over_budget AND active",
    "ix_agents_last_session_status": "(last_session_status, account_id)",
    "ix_agents_last_session_error_kind": "(last_session_error_kind, account_id) "
    "WHERE last_session_error_kind IS NOT NULL",
}

_KEYS = ("shard", "kind", "status", "trigger", "error_kind")
_SUMS = {
    "runs": sa.BigInteger,
    "effect": sa.BigInteger,
    "prompt_tokens": sa.BigInteger,
    "cached_tokens": sa.BigInteger,
    "completion_tokens": sa.BigInteger,
    "cost_usd": sa.Numeric,
    "unpriced_calls": sa.BigInteger,
}
# The kind of a run, and what it did to its agent's memories.
_RUNS = {
    "refinement_sessions": ("'session'::text", "removed_tokens"),
    "memory_tasks": ("kind", "memories_kept"),
}
_ADD = """
INSERT INTO run_sums AS kept ({keys}, {sums})
SELECT pg_backend_pid() % 16, {kind}, status, trigger, coalesce(error_kind, ''), sum(sign),
  sum(sign * {effect}), sum(sign * prompt_tokens), sum(sign * cached_tokens),
  sum(sign * completion_tokens), sum(sign * cost_usd), sum(sign * unpriced_calls)
FROM ({rows}) AS counted WHERE ended_at IS NOT NULL
GROUP BY 2, 3, 4, 5 ORDER BY 2, 3, 4, 5
ON CONFLICT ({keys}) DO UPDATE SET {added}
"""
_ROWS = "SELECT 1 AS sign, {columns} FROM {table}"
_CHANGED = "SELECT 1 AS sign, {after} UNION ALL SELECT -1, {before}"
_COUNTED = (
    *("ended_at", "status", "trigger", "error_kind"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "cost_usd", "unpriced_calls"),
)
_FUNCTION = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {does};
  RETURN NULL;
END $$
"""
# pg_temp is searched first unless it is named
_OF_THIS_SCHEMA = """
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION {name}() SET search_path = %I, pg_temp', current_schema());
END $$
"""
_TRIGGERS = (
    "CREATE TRIGGER {table}_added AFTER INSERT ON {table} REFERENCING NEW TABLE AS added "
    "FOR EACH STATEMENT EXECUTE FUNCTION sum_added_{table}()",
    "CREATE TRIGGER {table}_summed AFTER UPDATE ON {table} FOR EACH ROW "
    "WHEN (NEW.ended_at IS NOT NULL AND ({before}) IS DISTINCT FROM ({after})) "
    "EXECUTE FUNCTION sum_changed_{table}()",
)


def _add(table: str, rows: str) -> str:
    kind, effect = _RUNS[table]
    return _ADD.format(
        keys=", ".join(_KEYS),
        sums=", ".join(_SUMS),
        kind=kind,
        effect=effect,
        rows=rows,
        added=", ".join(f"{name} = kept.{name} + excluded.{name}" for name in _SUMS),
    )


def _columns(table: str, of: str = "") -> str:
    kind = ("kind",) if table == "memory_tasks" else ()
    return ", ".join(f"{of}{name}" for name in (*kind, *_COUNTED, _RUNS[table][1]))


def upgrade() -> None:
    op.execute(f"ALTER TABLE agents ADD COLUMN {_OVER_BUDGET}")
    for name, columns in _INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON agents {columns}")
    op.create_table(
        "run_sums",
        sa.Column("shard", sa.SmallInteger),
        *(sa.Column(name, sa.Text) for name in _KEYS[1:]),
        *(sa.Column(name, kind(), nullable=False) for name, kind in _SUMS.items()),
        sa.PrimaryKeyConstraint(*_KEYS, name="pk_run_sums"),
    )
    for table in _RUNS:
        _sum_up(table)


def _sum_up(table: str) -> None:
    columns = _columns(table)
    op.execute(_add(table, _ROWS.format(columns=columns, table=table)))
    before, after = _columns(table, "OLD."), _columns(table, "NEW.")
    does = {
        f"sum_added_{table}": _ROWS.format(columns=columns, table="added"),
        f"sum_changed_{table}": _CHANGED.format(after=after, before=before),
    }
    for name, rows in does.items():
        op.execute(_FUNCTION.format(name=name, does=_add(table, rows)))
        op.execute(_OF_THIS_SCHEMA.format(name=name))
    for trigger in _TRIGGERS:
        op.execute(trigger.format(table=table, before=before, after=after))


def downgrade() -> None:
    for table in _RUNS:
        for name in (f"sum_added_{table}", f"sum_changed_{table}"):
            op.execute(f"DROP FUNCTION {name}() CASCADE")
    op.drop_table("run_sums")
    for name in _INDEXES:
        op.drop_index(name, "agents")
    op.drop_column("agents", "over_budget")
