"""Agents carry the figures that lists need; triggers keep them, in the transaction that counts.

So they are right whoever writes: rows that are changed by hand are counted, too, and
``refine audit verify`` compares the figures with the rows.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_COUNTS = {"core_tokens": sa.BigInteger, "core_count": sa.Integer, "ledger_version": sa.BigInteger}
_LAST = {
    "last_session_id": sa.Uuid,
    "last_session_at": lambda: sa.DateTime(timezone=True),
    "last_session_status": sa.Text,
    "last_session_error_kind": sa.Text,
    "last_session_undone_at": lambda: sa.DateTime(timezone=True),
}

_ADD = """
UPDATE agents
SET core_count = core_count + changed.memories, core_tokens = core_tokens + changed.tokens,
  ledger_version = ledger_version + 1
FROM (
  SELECT agent_id, count(*) FILTER (WHERE sign > 0) - count(*) FILTER (WHERE sign < 0) AS memories,
    sum(sign * token_estimate) AS tokens
  FROM ({rows}) AS counted GROUP BY agent_id
) AS changed
WHERE agents.id = changed.agent_id
"""

_ROWS = """
  SELECT agent_id, token_estimate,
    CASE WHEN memory_type = 'core' AND discarded_at IS NULL THEN {sign} ELSE 0 END AS sign
  FROM {table}
"""

_ADDED = _ADD.format(rows=_ROWS.format(sign=1, table="added"))
_CHANGED = _ADD.format(
    rows=_ROWS.format(sign=1, table="after") + "UNION ALL" + _ROWS.format(sign=-1, table="before")
)
_EXISTING = _ADD.format(rows=_ROWS.format(sign=1, table="agent_memories"))

_LAST_SESSION = """
UPDATE agents
SET last_session_id = {session}.id, last_session_at = {session}.created_at,
  last_session_status = {session}.status, last_session_error_kind = {session}.error_kind,
  last_session_undone_at = {session}.undone_at
"""
_OF_NEW = """
WHERE id = NEW.agent_id AND (last_session_at IS NULL OR last_session_at <= NEW.created_at)
"""
_OF_EXISTING = """
FROM (
  SELECT DISTINCT ON (agent_id) * FROM refinement_sessions ORDER BY agent_id, created_at DESC
) AS last
WHERE agents.id = last.agent_id
"""

_FUNCTIONS = {
    "count_added_memories": _ADDED,
    "count_changed_memories": _CHANGED,
    "note_last_session": _LAST_SESSION.format(session="NEW") + _OF_NEW,
}
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
    "CREATE TRIGGER agent_memories_added AFTER INSERT ON agent_memories "
    "REFERENCING NEW TABLE AS added "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_added_memories()",
    "CREATE TRIGGER agent_memories_changed AFTER UPDATE ON agent_memories "
    "REFERENCING OLD TABLE AS before NEW TABLE AS after "
    "FOR EACH STATEMENT EXECUTE FUNCTION count_changed_memories()",
    "CREATE TRIGGER refinement_sessions_last "
    "AFTER INSERT OR UPDATE OF status, error_kind, undone_at ON refinement_sessions "
    "FOR EACH ROW EXECUTE FUNCTION note_last_session()",
)


def upgrade() -> None:
    for name, kind in _COUNTS.items():
        op.add_column(
            "agents", sa.Column(name, kind(), server_default=sa.text("0"), nullable=False)
        )
    for name, kind in _LAST.items():
        op.add_column("agents", sa.Column(name, kind()))
    op.execute(_EXISTING)
    op.execute(_LAST_SESSION.format(session="last") + _OF_EXISTING)
    for name, does in _FUNCTIONS.items():
        op.execute(_FUNCTION.format(name=name, does=does))
        op.execute(_OF_THIS_SCHEMA.format(name=name))
    for trigger in _TRIGGERS:
        op.execute(trigger)


def downgrade() -> None:
    for name in _FUNCTIONS:
        op.execute(f"DROP FUNCTION {name}() CASCADE")
    for name in (*_COUNTS, *_LAST):
        op.drop_column("agents", name)
