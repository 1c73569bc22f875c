"""Sessions that ended with an error are listed by its kind, and counted, from an index of theirs."""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_INDEX = "ix_refinement_sessions_errors"


def upgrade() -> None:
    op.execute(
        f"CREATE INDEX {_INDEX} ON refinement_sessions (created_at DESC, id, error_kind) "
        "WHERE error_kind IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_index(_INDEX, table_name="refinement_sessions")
