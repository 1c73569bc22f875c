"""Memory tasks that ended with an error are listed and counted from an index, as sessions are."""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

_INDEX = "ix_memory_tasks_errors"


def upgrade() -> None:
    op.execute(
        f"CREATE INDEX {_INDEX} ON memory_tasks (created_at DESC, id, error_kind) "
        "WHERE error_kind IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_index(_INDEX, table_name="memory_tasks")
