"""A sweep may be of chosen agents, and do something else than to refine those that need it."""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_COLUMNS = {"work": "text", "value": "text", "agent_ids": "bigint[]"}
_INDEX = "CREATE UNIQUE INDEX uq_sweeps_open_account ON sweeps (account_id) WHERE ended_at IS NULL"


def upgrade() -> None:
    added = ", ".join(f"ADD COLUMN {name} {type_}" for name, type_ in _COLUMNS.items())
    op.execute(f"ALTER TABLE sweeps {added}")
    op.execute("DROP INDEX uq_sweeps_open_account")
    op.execute(f"{_INDEX} AND work IS NULL")


def downgrade() -> None:
    op.execute("DROP INDEX uq_sweeps_open_account")
    op.execute("DELETE FROM sweeps WHERE work IS NOT NULL")
    op.execute(_INDEX)
    dropped = ", ".join(f"DROP COLUMN {name}" for name in _COLUMNS)
    op.execute(f"ALTER TABLE sweeps {dropped}")
