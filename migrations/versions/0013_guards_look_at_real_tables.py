"""The guards' functions look at this schema first: a temporary audit_logs would allow anything."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_FUNCTIONS = (
    "refuse_change()",
    "is_recorded(agent_memories, text)",
    "guard_constitutional_memory()",
)


def upgrade() -> None:
    for function in _FUNCTIONS:
        # pg_temp is searched first unless it is named
        op.execute(
            "DO $$ BEGIN EXECUTE format("
            f"'ALTER FUNCTION {function} SET search_path = %I, pg_temp', current_schema()"
            "); END $$"
        )


def downgrade() -> None:
    for function in _FUNCTIONS:
        op.execute(f"ALTER FUNCTION {function} RESET search_path")
