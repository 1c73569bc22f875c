"""What an agent leaves behind: the bytes of rows, and of their places in indexes."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import text

from bench.edits import whole_session
from bench.measuring import Benchmark, Figure
from bench.world import World, add_agent, texts
from refine import clock
from refine.extensions import db
from refine.models import Agent

# Half of what it was before entries of ended sessions were deleted.
AT_MOST_KB = (21.5, 500.0)
YEAR_AT_MOST_MB = 4.2

# A year is estimated from some weeks of an agent that saves as often; a quarter are core memories.
_WEEKS_OF_YEAR = 52
_WEEKS = 4
_SAVES_A_WEEK = 40
_KINDS = ("core", "journal", "journal", "journal")
_LEDGER = 150
_FIRST_TEXT = 2_000_000

# The header and the pointer of a row; pg_column_size counts only a part of them.
_OVERHEAD_BYTES = 28
_TABLES = {
    "audit_logs": "agent_id = :agent_id",
    "agent_memories": "agent_id = :agent_id",
    "refinement_sessions": "agent_id = :agent_id",
    "session_entries": "session_id IN "
    "(SELECT id FROM refinement_sessions WHERE agent_id = :agent_id)",
}
_ROWS = """
SELECT coalesce(sum(pg_column_size(t.*) + {overhead}), 0) FROM {table} t WHERE {mine}
"""
# Its share of an index: what an entry takes there on average.
_INDEXES = """
SELECT pg_relation_size(indexrelid) / greatest(reltuples, 1000) AS bytes_each,
  coalesce(pg_get_expr(indpred, indrelid), 'true') AS condition
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = '{table}'::regclass
"""


def benchmarks(world: World) -> list[Benchmark]:
    """Return those of a session, at both sizes of ledgers, and of a year."""
    sizes = zip(world.size.ledgers, AT_MOST_KB, strict=True)
    sessions = [
        Benchmark(f"growth, ledger of {memories:,}", partial(_growth, world, memories, at_most))
        for memories, at_most in sizes
    ]
    return [*sessions, Benchmark("growth, a year", lambda: _year(world))]


def _growth(world: World, memories: int, at_most_kb: float) -> Iterator[Figure]:
    agent_id = _added(world, memories)
    before = _bytes(agent_id)
    whole_session(agent_id)
    grown = (_bytes(agent_id) - before) / 1024
    name = f"left behind by a session of ten edits, ledger of {memories:,}"
    yield Figure(name, grown, at_most=at_most_kb, unit="KB")


def _year(world: World) -> Iterator[Figure]:
    agent_id = _added(world, _LEDGER)
    before = _bytes(agent_id)
    for week in range(_WEEKS):
        with clock.ahead(timedelta(weeks=week)):
            _live_a_week(agent_id, _FIRST_TEXT + week * _SAVES_A_WEEK)
    grown = (_bytes(agent_id) - before) * _WEEKS_OF_YEAR / _WEEKS / 1024**2
    name = f"left behind in an agent-year: {_SAVES_A_WEEK} saves and a session a week"
    yield Figure(name, grown, at_most=YEAR_AT_MOST_MB, unit="MB")


def _live_a_week(agent_id: int, first: int) -> None:
    for number, said in enumerate(texts(_SAVES_A_WEEK, first=first)):
        agent = db.session.get_one(Agent, agent_id)
        kind = _KINDS[number % len(_KINDS)]
        agent.ledger.remember(f"{said}, {said[: len(said) // 2]}", kind)
        db.session.commit()
    whole_session(agent_id)


def _added(world: World, memories: int) -> int:
    account_id = db.session.get_one(Agent, world.large_id).account_id
    return add_agent(account_id, texts(memories))


def _bytes(agent_id: int) -> float:
    total = 0.0
    for table, mine in _TABLES.items():
        db.session.execute(text(f"ANALYZE {table}"))  # counts what indexes hold
        rows = _ROWS.format(table=table, mine=mine, overhead=_OVERHEAD_BYTES)
        total += float(_scalar(rows, agent_id))
        for index in db.session.execute(text(_INDEXES.format(table=table))).all():
            entries = f"SELECT count(*) FROM {table} WHERE {mine} AND {index.condition}"  # noqa: S608
            total += _scalar(entries, agent_id) * index.bytes_each
    db.session.rollback()
    return total


def _scalar(query: str, agent_id: int) -> Any:
    return db.session.execute(text(query), {"agent_id": agent_id}).scalar_one()
