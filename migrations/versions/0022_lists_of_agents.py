"""Agents are listed by name from an index, and those over their budget are counted from one.

``over_budget`` is a column, because an index that named the tokens would have to be written with
every change of a memory.
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

_OVER_BUDGET = "over_budget boolean GENERATED ALWAYS AS (core_tokens > core_token_budget) STORED"
_INDEXES = {
    "ix_agents_name": "(lower(name), id)",
    "ix_agents_account_id_name": "(account_id, lower(name), id)",
    "ix_agents_over_budget": "(account_id) WHERE over_budget AND active",
    "ix_agents_last_session_status": "(last_session_status, account_id)",
    "ix_agents_last_session_error_kind": "(last_session_error_kind, account_id) "
    "WHERE last_session_error_kind IS NOT NULL",
}


def upgrade() -> None:
    op.execute(f"ALTER TABLE agents ADD COLUMN {_OVER_BUDGET}")
    for name, columns in _INDEXES.items():
        op.execute(f"CREATE INDEX {name} ON agents {columns}")


def downgrade() -> None:
    for name in _INDEXES:
        op.drop_index(name, "agents")
    op.drop_column("agents", "over_budget")
