"""The cost of verification, against plainly reading and hashing the same rows."""

from collections.abc import Iterator

from sqlalchemy import select

from bench.measuring import Benchmark, Figure, Unexpected, interleaved, plain_connection, timed
from bench.starts import hashable
from bench.world import World
from refine.extensions import db
from refine.models import ChainHead, WrappedKey
from refine.models.audit.verification import ChainResult
from refine.models.integrity import verify_chains

AT_MOST_TIMES = 1.5

_ROUNDS = 3
_ROWS = (
    "SELECT id, chain_id, sequence, account_id, user_id, agent_id, session_id, action, "
    "auditable_type, auditable_id, created_at, data::text, rows::text, sealed, hash "
    "FROM audit_logs WHERE agent_id = ANY(%s) ORDER BY chain_id, sequence",
    "SELECT * FROM agent_memories WHERE agent_id = ANY(%s)",
    "SELECT * FROM refinement_sessions WHERE agent_id = ANY(%s)",
)


def benchmarks(world: World) -> list[Benchmark]:
    """Return the benchmark of the verification."""
    return [Benchmark("audit verify", lambda: _verification(world))]


def _verification(world: World) -> Iterator[Figure]:
    ids = list(world.tidied_ids)
    chains = list(db.session.scalars(select(ChainHead.id).where(ChainHead.agent_id.in_(ids))))
    rounds = _ROUNDS if world.size.repetitions > 1 else 1
    ours, floor = interleaved(
        rounds,
        timed(lambda: _expect_sound(verify_chains(chains))),
        timed(lambda: _hash(ids)),
        warm_ups=0,
    )
    name = f"audit verify, {len(chains)} chains of {world.size.records_each:,} records"
    yield Figure(name, ours, floor, at_most_times=AT_MOST_TIMES)


def _expect_sound(results: list[ChainResult]) -> None:
    for found in results:
        if found.problem is not None:
            raise Unexpected(found.problem)
    db.session.rollback()
    db.session.expunge_all()


def _hash(agent_ids: list[int]) -> None:
    key = WrappedKey.platform_key()
    with plain_connection() as connection:
        for rows in _ROWS:
            for row in connection.execute(rows, (agent_ids,)):
                key.mac(hashable(row), "bench")
    db.session.rollback()
