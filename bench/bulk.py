"""Many rows at once: what lists, sums and counts look at, without content that anybody opens.

These rows are as many, as large and as spread over two years as an installation's. Memories and
records are fillers: their digests and hashes are not genuine. All other rows are genuine, except
what nobody opens.
"""

from sqlalchemy import Connection, select, text

from refine.extensions import db
from refine.models import AccessGrant, Account, Agent, ApiToken, ChainHead, RefinementSession, User
from refine.models.attested import Attested, plain_digest, plain_rows, write
from refine.models.keys import row_id

SESSIONS_EACH = 5
TASKS_EACH = 5

_MODEL = "rehearsal/bench"
_ADDED_AT_ONCE = 250
_DIGESTS_AT_ONCE = 5_000
_HEADS_AT_ONCE = 1_000

_MEMORIES = """
INSERT INTO agent_memories (agent_id, memory_type, content, content_hash, token_estimate,
  created_at, recorded_at, updated_at, row_digest)
SELECT id, 'core', decode(repeat('02', 160), 'hex'), md5(id || '.' || n) || md5(n || '.' || id),
  20 + (id * 7 + n * 13) % 40, at, at, at, repeat('0', 64)
FROM agents, generate_series(1, :each) AS n,
  LATERAL (SELECT now() - (id * 7919 + n * 4099) % 17520 * interval '1 hour') AS written (at)
WHERE agents.id > :after
"""

# Most were completed; some failed, for the last time, or were declined or skipped.
_SESSIONS = """
INSERT INTO refinement_sessions (agent_id, attempt, trigger, status, error_kind, end_reason,
  model_id, threshold, mass_before, mass_after, memories_before, memories_after, removable_tokens,
  removed_tokens, mutation_count, stats, turns, tool_calls, llm_calls, prompt_tokens, cached_tokens,
  completion_tokens, cost_usd, created_at, started_at, ended_at)
SELECT id, 99, (ARRAY['weekly', 'weekly', 'weekly', 'over_budget', 'manual'])[1 + (id + n) % 5],
  status, CASE WHEN status = 'failed' THEN 'refused' END, 'as the benchmark made it', model_id,
  0.7, 400, 380, 11, 10, 120, 20, 1,
  '{"consolidated": 0, "updated": 0, "deleted": 1, "protected": 0}', 3, 2, 3, 6000, 4000, 200,
  0.0123, at, at + interval '2 seconds', at + interval '1 minute'
FROM agents, generate_series(1, :each) AS n,
  LATERAL (SELECT now() - (48 + (agents.id * 7919 + n * 4099) % 17520) * interval '1 hour')
  AS begun (at),
  LATERAL (SELECT (ARRAY['failed', 'declined', 'skipped', 'completed', 'completed', 'completed',
    'completed', 'completed', 'completed', 'completed', 'completed', 'completed', 'completed',
    'completed', 'completed', 'completed', 'completed', 'completed', 'completed', 'completed']
    )[1 + (id * 5 + n) % 20]) AS ended (status)
WHERE agents.id > :after
ORDER BY at
"""

# Sorted by time, so that ids grow with it, as they do where records are written one by one. One
# in a thousand is a rollback.
_RECORDS = """
INSERT INTO audit_logs (chain_id, sequence, account_id, agent_id, action, auditable_type,
  auditable_id, data, created_at, hash)
SELECT chain_heads.id, n, agents.account_id, agents.id,
  CASE WHEN (agents.id * 31 + n) % 1000 = 0 THEN 'memory_refinement_rollback'
    ELSE (ARRAY['memory_saved', 'memory_saved', 'memory_saved', 'memory_refinement_update',
      'memory_refinement_delete', 'refinement_queued', 'memory_refinement_complete'])[1 + n % 7]
  END,
  'AgentMemory', (agents.id * 10 + n % 10)::text,
  '{"image_version": 1, "mass_after": 380, "memories": []}',
  now() - interval '2 years' * (1 - (n - random()) / :each), md5(n::text) || md5(agents.id::text)
FROM agents JOIN chain_heads ON chain_heads.agent_id = agents.id,
  generate_series(1, :each) AS n
WHERE agents.id > :after
ORDER BY created_at
"""

# An index is built in less time than it takes to extend it row by row.
_INDEXES = """
SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
FROM pg_index WHERE indrelid = 'audit_logs'::regclass AND NOT indisunique
"""

_DIGESTS = """
UPDATE {table} SET row_digest = digest FROM unnest(%s, %s::text[]) AS known (known_id, digest)
WHERE id = known_id
"""

_TASKS = """
INSERT INTO memory_tasks (agent_id, kind, trigger, status, model_id, memories_kept, llm_calls,
  prompt_tokens, cached_tokens, completion_tokens, cost_usd, created_at, due_at, started_at,
  ended_at)
SELECT id, 'reflection', 'daily', 'completed', model_id, n, 1, 2000, 1000, 100, 0.002, at, at, at,
  at + interval '1 minute'
FROM agents, generate_series(1, :each) AS n,
  LATERAL (SELECT now() - (48 + (agents.id * 7919 + n * 4099) % 17520) * interval '1 hour')
  AS begun (at)
WHERE agents.id > :after
"""

# For each agent a viewer, who once read what it keeps, and a token.
_VIEWERS = """
INSERT INTO users (account_id, email)
SELECT account_id, 'viewer-' || id || '@example.org' FROM agents WHERE id > :after
"""
_GRANTS = """
INSERT INTO access_grants (account_id, agent_id, user_id, status, reason, purpose,
  duration_minutes, model_id, created_at, asked_at, granted_at, expires_at, end_reason, ended_at)
SELECT agents.account_id, agents.id, users.id, 'ended', 'agent_asked',
  decode(repeat('02', 60), 'hex'), 30, model_id, at, at, at, at + interval '30 minutes', 'expired',
  at + interval '30 minutes'
FROM agents JOIN users ON email = 'viewer-' || agents.id || '@example.org',
  LATERAL (SELECT now() - (48 + agents.id * 7919 % 17520) * interval '1 hour') AS begun (at)
WHERE agents.id > :after
"""
_TOKENS = """
INSERT INTO api_tokens (kind, account_id, agent_id, token_hash, hint)
SELECT 'agent', account_id, id, md5(id::text) || md5('token'), 'ra_none'
FROM agents WHERE id > :after
"""


def add_agents(accounts: list[Account], count: int) -> int:
    """Add genuine agents to these accounts in turn; return the id that they come after."""
    after = db.session.scalar(text("SELECT coalesce(max(id), 0) FROM agents")) or 0
    account_ids = [account.id for account in accounts]
    for first in range(0, count, _ADDED_AT_ONCE):
        agents = []
        for number in range(first, min(first + _ADDED_AT_ONCE, count)):
            account = db.session.get_one(Account, account_ids[number % len(account_ids)])
            agent = Agent(account=account, name=f"Agent {after + number}", model_id=_MODEL)
            agent.account_id, agent.data_key_id = account.id, row_id(agent.wrapped_key)
            agents.append(agent)
        write(*(agent.wrapped_key for agent in agents))
        write(*agents)
        write(*(ChainHead(agent_id=agent.id) for agent in agents))
        db.session.commit()
        db.session.expunge_all()
    return int(after)


def fill(after: int, records_each: int, memories_each: int) -> None:
    """Give every agent after this id memories, runs, records, a reader and a token."""
    db.session.commit()  # a transaction that stays idle for this long would be ended
    with db.engine.begin() as connection:
        connection.execute(text("SELECT setseed(0.16)"))
        connection.execute(text(_MEMORIES), {"after": after, "each": memories_each})
        connection.execute(text(_SESSIONS), {"after": after, "each": SESSIONS_EACH})
        connection.execute(text(_TASKS), {"after": after, "each": TASKS_EACH})
        for statement in (_VIEWERS, _GRANTS, _TOKENS):
            connection.execute(text(statement), {"after": after})
        _hurry(connection)
        dropped = connection.execute(text(_INDEXES)).all()
        for index in dropped:
            connection.execute(text(f"DROP INDEX {index.name}"))
        connection.execute(text(_RECORDS), {"after": after, "each": records_each})
        for index in dropped:
            connection.exec_driver_sql(index.definition)
    for kind in (RefinementSession, User, AccessGrant, ApiToken):
        _add_digests(kind)
    _advance_heads(after, records_each)
    settle()


def _hurry(connection: Connection) -> None:
    """Foreign keys hold, and triggers have nothing to count: both take longer than the rows."""
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    connection.execute(text("SET LOCAL work_mem = '1GB'; SET LOCAL maintenance_work_mem = '1GB'"))


def settle() -> None:
    """Refresh the database's statistics, as it does by itself in time."""
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def _add_digests(kind: type[Attested]) -> None:
    while True:
        with db.engine.begin() as connection:
            _hurry(connection)
            if not add_missing_digests(connection, kind, _DIGESTS_AT_ONCE):
                return


def add_missing_digests(connection: Connection, kind: type[Attested], limit: int) -> int:
    """Add digests to the next rows without one; return how many."""
    columns = kind.__mapper__.columns
    without = plain_rows(kind).where(columns["row_digest"].is_(None)).order_by(columns["id"])
    rows = connection.execute(without.limit(limit)).all()
    if digests := {row.id: plain_digest(kind, row) for row in rows}:
        changed = _DIGESTS.format(table=kind.__tablename__)
        connection.exec_driver_sql(changed, (list(digests), list(digests.values())))
    return len(rows)


def _advance_heads(after: int, records_each: int) -> None:
    last = "SELECT chain_id, hash FROM audit_logs WHERE agent_id > :after AND sequence = :last"
    bounds = {"after": after, "last": records_each}
    hashes = {row.chain_id: row.hash for row in db.session.execute(text(last), bounds)}
    ids = sorted(hashes)
    for first in range(0, len(ids), _HEADS_AT_ONCE):
        some = ids[first : first + _HEADS_AT_ONCE]
        for head in db.session.scalars(select(ChainHead).where(ChainHead.id.in_(some))):
            head.sequence, head.hash = records_each, hashes[head.id]
        db.session.commit()
        db.session.expunge_all()
