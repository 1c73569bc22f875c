"""What a session leaves behind: the bytes of its rows, and of their places in indexes."""

from collections.abc import Iterator
from functools import partial

from sqlalchemy import text

from bench.edits import whole_session
from refine.cli.bench.measuring import Benchmark, Figure
from refine.cli.bench.world import World, add_agent, texts
from refine.extensions import db
from refine.models import Agent

# Half of what it was before entries of ended sessions were deleted.
AT_MOST_KB = (21.5, 500.0)

# The header and the pointer of a row, of which pg_column_size counts a part.
_OVERHEAD_BYTES = 28
_TABLES = {
    "audit_logs": "agent_id = :agent_id",
    "agent_memories": "agent_id = :agent_id",
    "refinement_sessions": "agent_id = :agent_id",
    "session_entries": "session_id IN "
    "(SELECT id FROM refinement_sessions WHERE agent_id = :agent_id)",
}
_ROWS = """
SELECT count(*), coalesce(sum(pg_column_size(t.*) + {overhead}), 0) FROM {table} t WHERE {mine}
"""
# of the whole table: how much of all its indexes a row takes
_INDEXES = """
SELECT pg_indexes_size('{table}'::regclass) / greatest(
  (SELECT reltuples FROM pg_class WHERE oid = '{table}'::regclass), 1000)
"""


def benchmarks(world: World) -> list[Benchmark]:
    """Return that of a session, at both sizes of ledgers."""
    sizes = zip(world.size.ledgers, AT_MOST_KB, strict=True)
    return [
        Benchmark(f"growth, ledger of {memories:,}", partial(_growth, world, memories, at_most))
        for memories, at_most in sizes
    ]


def _growth(world: World, memories: int, at_most_kb: float) -> Iterator[Figure]:
    account_id = db.session.get_one(Agent, world.large_id).account_id
    agent_id = add_agent(account_id, texts(memories))
    before = _bytes(agent_id)
    whole_session(agent_id)
    grown = (_bytes(agent_id) - before) / 1024
    name = f"left behind by a session of ten edits, ledger of {memories:,}"
    yield Figure(name, grown, at_most=at_most_kb, unit="KB")


def _bytes(agent_id: int) -> float:
    total = 0.0
    for table, mine in _TABLES.items():
        rows = _ROWS.format(table=table, mine=mine, overhead=_OVERHEAD_BYTES)
        count, size = db.session.execute(text(rows), {"agent_id": agent_id}).one()
        index = db.session.execute(text(_INDEXES.format(table=table))).scalar_one()
        total += float(size) + count * index
    db.session.rollback()
    return total
