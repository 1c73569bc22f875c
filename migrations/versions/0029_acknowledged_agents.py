"""An agent's row tells whether its last session was acknowledged: overviews list those that were not."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_INDEX = "ix_agents_unseen_session"
_NOTE = """
CREATE OR REPLACE FUNCTION note_last_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE agents
  SET last_session_id = NEW.id, last_session_at = NEW.created_at,
    last_session_status = NEW.status, last_session_error_kind = NEW.error_kind,
    last_session_undone_at = NEW.undone_at{seen}
  WHERE id = NEW.agent_id AND (last_session_at IS NULL OR last_session_at <= NEW.created_at);
  RETURN NULL;
END $$
"""
_TRIGGER = """
CREATE OR REPLACE TRIGGER refinement_sessions_last
AFTER INSERT OR UPDATE OF status, error_kind, undone_at{seen} ON refinement_sessions
FOR EACH ROW EXECUTE FUNCTION note_last_session()
"""


# pg_temp is searched first unless it is named
_OF_THIS_SCHEMA = """
DO $$ BEGIN
  EXECUTE format(
    'ALTER FUNCTION note_last_session() SET search_path = %I, pg_temp', current_schema()
  );
END $$
"""


def upgrade() -> None:
    op.add_column("agents", sa.Column("last_session_seen_at", sa.DateTime(timezone=True)))
    _note(", last_session_seen_at = NEW.seen_at", ", seen_at")
    op.execute(
        "UPDATE agents SET last_session_seen_at = last.seen_at FROM refinement_sessions AS last "
        "WHERE last.id = agents.last_session_id AND last.seen_at IS NOT NULL"
    )
    op.create_index(
        _INDEX,
        "agents",
        ["last_session_status", sa.text("last_session_at DESC"), "id"],
        postgresql_where=sa.text("last_session_seen_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index(_INDEX, table_name="agents")
    _note("", "")
    op.drop_column("agents", "last_session_seen_at")


def _note(kept: str, watched: str) -> None:
    op.execute(_NOTE.format(seen=kept))
    op.execute(_OF_THIS_SCHEMA)
    op.execute(_TRIGGER.format(seen=watched))
