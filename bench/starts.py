"""The time of a session until its model is asked: duplicates, excerpt, snapshot."""

import gc
import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench.measuring import Benchmark, Figure, Unexpected, plain_connection, timed
from bench.world import World, opened
from refine import settings
from refine.extensions import canonical_json, db
from refine.models import Agent, RefinementSession
from refine.refinement.loop import SessionEvent, refine

AT_MOST_MS = 1_500

_ROUNDS = 3

_MEMORIES = "SELECT * FROM agent_memories WHERE agent_id = %s AND discarded_at IS NULL ORDER BY id"
_ENTRIES = """
INSERT INTO session_entries (session_id, memory_id, ceiling_tokens, counting_tokens, shown_digest)
SELECT %s, id, token_estimate, token_estimate, row_digest FROM agent_memories
WHERE agent_id = %s AND memory_type = 'core' AND discarded_at IS NULL
"""
_LAST_SESSION = """
SELECT id FROM refinement_sessions WHERE agent_id = %s ORDER BY created_at DESC LIMIT 1
"""


def benchmarks(world: World) -> list[Benchmark]:
    """Return the benchmark of the start of a session."""
    return [
        Benchmark(f"start of a session, ledger of {world.size.ledgers[1]:,}", lambda: _start(world))
    ]


def _start(world: World) -> Iterator[Figure]:
    floor = timed(lambda: _plain_start(world.large_id))
    rounds = _ROUNDS if world.size.repetitions > 1 else 1
    pairs = [(_until_snapshot(world.large_id), floor()) for _ in range(rounds)]
    ours, floors = map(statistics.median, zip(*pairs, strict=True))
    name = f"start of a session, ledger of {world.size.ledgers[1]:,}"
    yield Figure(name, ours, floors, at_most=AT_MOST_MS)


def _until_snapshot(agent_id: int) -> float:
    """Run a session until it has taken its snapshot; return the milliseconds."""
    session_id = RefinementSession.queue(db.session.get_one(Agent, agent_id), "manual").id
    db.session.commit()
    db.session.expunge_all()
    reached: list[float] = []

    def observe(event: SessionEvent) -> None:
        if event.kind == "snapshot":
            reached.append(time.perf_counter())

    gc.freeze()  # as a worker does before it works
    began = time.perf_counter()
    refine(session_id, settings.current(), observe=observe, is_stopping=lambda: bool(reached))
    gc.unfreeze()
    handed_back = db.session.get_one(RefinementSession, session_id)
    handed_back.lock()
    handed_back.finish(handed_back.stopped_status, "it was only measured")
    db.session.commit()
    db.session.expunge_all()
    if not reached:
        raise Unexpected("the session ended before its snapshot")
    return (reached[0] - began) * 1000


def _plain_start(agent_id: int) -> None:
    """Fetch the rows, open all, hash all, and add an entry for each; nothing is kept."""
    key = db.session.get_one(Agent, agent_id).data_key()
    with plain_connection() as connection:
        found = connection.execute(_MEMORIES, (agent_id,))
        columns = [column.name for column in found.description]
        rows = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
        for row in rows:
            opened(key, row["id"], row["content"], row["content_key"])
        for row in rows:
            key.mac(hashable(row.values()), "bench")
        last = connection.execute(_LAST_SESSION, (agent_id,)).fetchone()
        connection.execute("DELETE FROM session_entries WHERE session_id = %s", last)
        connection.commit()
        connection.execute(_ENTRIES, (*last, agent_id))
        connection.rollback()
    db.session.commit()


def hashable(values: Any) -> str:
    """Return the hashed text of a row."""
    return canonical_json(
        [value.hex() if isinstance(value, bytes) else str(value) for value in values]
    )
