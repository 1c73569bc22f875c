"""What one edit through the tool costs against five bare statements, and a session of ten edits."""

import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

from bench.measuring import Benchmark, Figure, Unexpected, plain_connection, timed
from bench.world import World, texts
from refine.extensions import db
from refine.models import MAX_MUTATIONS, Agent, AgentMemory, RefinementSession
from refine.tools import RefinementTool

EDIT_AT_MOST_TIMES = 6.0
TEN_AT_MOST_MS = 150.0

_MUTATIONS = {"delete": "deleted", "update": "updated", "consolidate": "consolidated"}
_TEN = [list(_MUTATIONS)[number % len(_MUTATIONS)] for number in range(MAX_MUTATIONS)]
_SESSIONS = 4
# Different from each other, and from those of every ledger.
_new_texts = iter(texts(1_000, first=1_000_000))


def benchmarks(world: World) -> list[Benchmark]:
    """Return the benchmarks of edits, at both sizes of ledgers."""
    small, large = world.size.ledgers
    count = _SESSIONS if world.size.repetitions > 1 else 1
    return [
        Benchmark(f"edits, ledger of {size:,}", partial(_edits, world, size, agent_ids))
        for size, agent_ids in (
            (small, world.tidied_ids[:count]),
            (large, (world.large_id,) * count),
        )
    ]


def _edits(world: World, memories: int, agent_ids: tuple[int, ...]) -> Iterator[Figure]:
    """Measure sessions of ten edits, each edit in turn with its floor; the first is a warm-up.

    A session's time counts the reading of its ledger before the first edit.
    """
    ours, floors, sessions = list[float](), list[float](), list[float]()
    with closing(_BareEdits(world)) as bare:
        for agent_id in agent_ids:
            session = _Session(agent_id)
            taken = [(timed(session.call(action))(), timed(bare.edit)()) for action in _TEN]
            end = timed(session.call("complete"))()
            ours += [each for each, _ in taken[1:]]
            floors += [floor for _, floor in taken[1:]]
            sessions.append(session.reading_ms + sum(each for each, _ in taken) + end)
    edit, floor = statistics.median(ours), statistics.median(floors)
    named = f"ledger of {memories:,}"
    yield Figure(f"an edit, {named}", edit, floor, at_most_times=EDIT_AT_MOST_TIMES)
    whole = statistics.median(sessions)
    yield Figure(f"ten edits and complete, {named}", whole, at_most=TEN_AT_MOST_MS)


class _Session:
    """A running session of an agent, and the calls that it can still make."""

    def __init__(self, agent_id: int) -> None:
        agent = db.session.get_one(Agent, agent_id)
        session = RefinementSession.start(agent)
        began = time.perf_counter()
        self._tool = RefinementTool(session)
        self.reading_ms = (time.perf_counter() - began) * 1000
        unlocked = agent.ledger.core().where(~AgentMemory.is_locked)
        self._ids = [memory.id for memory in db.session.scalars(unlocked)]
        db.session.commit()

    def call(self, action: str) -> Callable[[], None]:
        """Return a function that makes such a call on untouched memories."""
        params = self._params(action)

        def call() -> None:
            result = self._tool.execute(action=action, **params)
            if result["type"] != _MUTATIONS.get(action, "refinement_complete"):
                raise Unexpected(f"{action}: {result['type']}, {result.get('error', '')}")

        return call

    def _params(self, action: str) -> dict[str, Any]:
        if action == "complete":
            return {"summary": "measured"}
        if action == "consolidate":
            return {"ids": [self._ids.pop(), self._ids.pop()], "content": next(_new_texts)}
        params: dict[str, Any] = {"id": self._ids.pop()}
        return {**params, "content": next(_new_texts)} if action == "update" else params


_RECORD = """
INSERT INTO audit_logs (chain_id, sequence, account_id, agent_id, action, auditable_type,
  auditable_id, data, sealed, created_at, hash)
VALUES (%s, %s, %s, %s, 'memory_refinement_update', 'AgentMemory', %s, %s, %s, now(), %s)
"""
_DATA = '{"image_version":1,"memories":[],"operation":"update","filler":"%s"}' % ("x" * 320)
_SEALED = b"\x02" * 300


class _BareEdits:
    """Five statements in one transaction, on memories of an agent of their own."""

    def __init__(self, world: World) -> None:
        self._connection: Any = plain_connection()
        self._agent_id = world.floor_agent_id
        found = self._connection.execute(
            "SELECT id FROM agent_memories WHERE agent_id = %s ORDER BY id", (self._agent_id,)
        )
        self._memory_ids = [row[0] for row in found]
        self._account_id, self._chain_id, self._sequence = self._connection.execute(
            "SELECT agents.account_id, chain_heads.id, sequence FROM chain_heads "
            "JOIN agents ON agents.id = agent_id WHERE agent_id = %s",
            (self._agent_id,),
        ).fetchone()
        self._connection.commit()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def edit(self) -> None:
        """Lock agent and memory, change it, add a record, advance the head; commit."""
        execute = self._connection.execute
        self._sequence += 1
        memory_id = self._memory_ids[self._sequence % len(self._memory_ids)]
        digest = uuid.uuid4().hex * 2
        execute(
            "SELECT * FROM agents WHERE id = %s FOR NO KEY UPDATE", (self._agent_id,)
        ).fetchone()
        execute("SELECT * FROM agent_memories WHERE id = %s FOR UPDATE", (memory_id,)).fetchone()
        execute(
            "UPDATE agent_memories SET content = %s, content_hash = %s, token_estimate = %s, "
            "updated_at = now(), row_digest = %s WHERE id = %s",
            (_SEALED, digest, 20, digest, memory_id),
        )
        execute(
            _RECORD,
            (
                *(self._chain_id, self._sequence, self._account_id, self._agent_id),
                *(str(memory_id), _DATA, _SEALED, digest),
            ),
        )
        execute(
            "UPDATE chain_heads SET sequence = %s, hash = %s, row_digest = %s WHERE id = %s",
            (self._sequence, digest, digest, self._chain_id),
        )
        self._connection.commit()
