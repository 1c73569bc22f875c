"""What a session does before its model is asked: exact duplicates, excerpt, snapshot."""

import gc
import statistics
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from bench.measuring import Benchmark, Figure, plain_connection, timed
from bench.world import CONTENT, World, add_agent, texts
from refine import settings
from refine.extensions import columns_json, db
from refine.models import Agent, RefinementSession
from refine.refinement.loop import Event, refine
from refine.sealing import Place

AT_MOST_TIMES = 3.0
DUPLICATES_AT_MOST_MS = 3_000
OTHERS_WAIT_AT_MOST_MS = 200

_ROUNDS = 3
_WRITES_EVERY_SECONDS = 0.005

_MEMORIES = "SELECT * FROM agent_memories WHERE agent_id = %s AND discarded_at IS NULL ORDER BY id"
_ENTRIES = """
INSERT INTO session_entries (session_id, memory_id, ceiling_tokens, counting_tokens, shown_digest)
SELECT %s, id, token_estimate, token_estimate, row_digest FROM agent_memories
WHERE agent_id = %s AND memory_type = 'core' AND discarded_at IS NULL
"""
_LAST_SESSION = """
SELECT id FROM refinement_sessions WHERE agent_id = %s ORDER BY created_at DESC LIMIT 1
"""
_RECORDS = (
    "COPY bench_records (chain_id, sequence, account_id, agent_id, action, auditable_type, "
    "auditable_id, data, sealed, created_at, hash) FROM STDIN"
)
_DATA = '{"image_version":1,"memories":[],"operation":"dedup","filler":"%s"}' % ("x" * 320)


class Unexpected(Exception):
    """The session did something else than the benchmark needs."""


def benchmarks(world: World) -> list[Benchmark]:
    """Return those of the start of a session."""
    memories, copies = world.size.duplicates
    return [
        Benchmark(
            f"start of a session, ledger of {world.size.ledgers[1]:,}", lambda: _start(world)
        ),
        Benchmark(f"{copies:,} exact duplicates", lambda: _duplicates(world)),
    ]


def _start(world: World) -> Iterator[Figure]:
    floor = timed(lambda: _plain_start(world.large_id))
    rounds = _ROUNDS if world.size.repetitions > 1 else 1
    pairs = [(_until(world.large_id, "snapshot")[0], floor()) for _ in range(rounds)]
    ours, floors = zip(*pairs, strict=True)
    name = f"start of a session, ledger of {world.size.ledgers[1]:,}"
    yield Figure(
        name, statistics.median(ours), statistics.median(floors), at_most_times=AT_MOST_TIMES
    )


def _until(agent_id: int, step: str) -> tuple[float, dict[str, Any]]:
    """Run a session until it has taken this step; return the milliseconds, and what it found."""
    session_id = RefinementSession.queue(db.session.get_one(Agent, agent_id), "manual").id
    db.session.commit()
    db.session.expunge_all()
    reached: list[tuple[float, dict[str, Any]]] = []

    def observe(event: Event) -> None:
        if event.kind == step:
            reached.append((time.perf_counter(), event.facts))

    gc.freeze()  # as a worker does before it works
    began = time.perf_counter()
    refine(session_id, settings.current(), observe=observe, is_stopping=lambda: bool(reached))
    if not reached:
        raise Unexpected(f"the session ended before its {step}")
    at, facts = reached[0]
    gc.unfreeze()
    db.session.expunge_all()
    return (at - began) * 1000, facts


def _plain_start(agent_id: int) -> None:
    """Fetch the rows, open all, hash all, and add an entry for each; nothing is kept."""
    key = db.session.get_one(Agent, agent_id).data_key()
    with plain_connection() as connection:
        found = connection.execute(_MEMORIES, (agent_id,))
        columns = [column.name for column in found.description]
        rows = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
        for row in rows:
            key.open(row["content"], Place(CONTENT, row["id"]))
        for row in rows:
            key.mac(hashable(row.values()), "bench")
        last = connection.execute(_LAST_SESSION, (agent_id,)).fetchone()
        connection.execute("DELETE FROM session_entries WHERE session_id = %s", last)
        connection.commit()
        connection.execute(_ENTRIES, (*last, agent_id))
        connection.rollback()
    db.session.commit()


def hashable(values: Any) -> str:
    """Return the text of a row that is hashed."""
    return columns_json(
        [value.hex() if isinstance(value, bytes) else str(value) for value in values]
    )


def _duplicates(world: World) -> Iterator[Figure]:
    memories, copies = world.size.duplicates
    different = texts(memories - copies)
    account_id = db.session.get_one(Agent, world.large_id).account_id
    agent_id = add_agent(account_id, [*different, *different[:copies]])
    floor = timed(_PlainDuplicates(agent_id, copies).discard)()
    with_writer = _OtherWriter(agent_id)
    with_writer.start()
    try:
        ours, facts = _until(agent_id, "duplicates")
    finally:
        longest = with_writer.stop()
    if facts["removed"] != copies:
        raise Unexpected(f"{facts['removed']} of {copies} duplicates were removed")
    name = f"{copies:,} exact duplicates among {memories:,}"
    yield Figure(name, ours, floor, at_most=DUPLICATES_AT_MOST_MS)
    yield Figure(f"{name}: longest wait of another writer", longest, at_most=OTHERS_WAIT_AT_MOST_MS)


class _PlainDuplicates:
    """One set-based UPDATE and the records by COPY, in tables of their own."""

    def __init__(self, agent_id: int, copies: int) -> None:
        self._connection = plain_connection()
        execute = self._connection.execute
        execute("CREATE TEMPORARY TABLE bench_memories (LIKE agent_memories INCLUDING ALL)")
        execute("CREATE TEMPORARY TABLE bench_records (LIKE audit_logs INCLUDING ALL)")
        execute(
            "INSERT INTO bench_memories SELECT * FROM agent_memories WHERE agent_id = %s",
            (agent_id,),
        )
        found = execute("SELECT id FROM bench_memories ORDER BY id DESC LIMIT %s", (copies,))
        self._ids = [row[0] for row in found]
        self._records = [
            (
                *(1, number, 1, agent_id, "memory_refinement_dedup", "AgentMemory", str(id_)),
                *(_DATA, b"\x02" * 300, "now", uuid.uuid4().hex * 2),
            )
            for number, id_ in enumerate(self._ids)
        ]
        self._connection.commit()

    def discard(self) -> None:
        """Do it, and commit."""
        self._connection.execute(
            "UPDATE bench_memories SET discarded_at = now(), updated_at = now(), "
            "row_digest = content_hash WHERE id = ANY(%s)",
            (self._ids,),
        )
        with self._connection.cursor() as cursor, cursor.copy(_RECORDS) as copying:
            for record in self._records:
                copying.write_row(record)
        self._connection.commit()
        self._connection.close()


class _OtherWriter(threading.Thread):
    """Locks the agent again and again, as saving a memory does, and notes the longest wait."""

    def __init__(self, agent_id: int) -> None:
        super().__init__(daemon=True)
        self._connection = plain_connection()
        self._connection.execute("SET lock_timeout = 0")
        self._connection.commit()
        self._agent_id = agent_id
        self._is_over = threading.Event()
        self._longest_ms = 0.0

    def run(self) -> None:
        """Write until ``stop``."""
        while not self._is_over.wait(_WRITES_EVERY_SECONDS):
            self._longest_ms = max(self._longest_ms, timed(self._write)())

    def stop(self) -> float:
        """Stop, and return the longest wait in milliseconds."""
        self._is_over.set()
        self.join()
        self._connection.close()
        return self._longest_ms

    def _write(self) -> None:
        self._connection.execute(
            "SELECT id FROM agents WHERE id = %s FOR NO KEY UPDATE", (self._agent_id,)
        )
        self._connection.commit()
