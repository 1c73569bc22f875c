"""Checking the audit log: the chains, memories against their records, and every row's digest."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Text, cast, select, update
from sqlalchemy.orm import undefer

from refine import clock
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import GENESIS, AuditLog, ChainHead
from refine.models.memory import AgentMemory
from refine.models.wrapped_key import WrappedKey
from refine.sealing import DataKey

_BATCH = 500

# Digests by memory id, as the last record left them.
Digests = dict[int, str]


@dataclass(frozen=True)
class Verified:
    """What one chain's check found; ``problem`` names the first thing that is wrong."""

    name: str
    records: int
    memories: int
    problem: str | None
    chain_id: int | None = None


class _Broken(Exception):
    """The first bad record or row."""


def verify_all() -> Iterator[Verified]:
    """Check chain after chain, then the agents that have none; ``stamp`` keeps what it found.

    All as of one instant, where no transaction is open yet.
    """
    if not db.session().in_transaction():
        db.session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    for head in db.session.scalars(select(ChainHead).order_by(ChainHead.id)).all():
        yield _verify(head)
    headless = select(AuditLog.chain_id).where(AuditLog.chain_id.not_in(select(ChainHead.id)))
    for chain_id in db.session.scalars(headless.distinct()):
        yield Verified(f"chain {chain_id}", 0, 0, "the chain has records, but its head is gone")
    with_chain = select(ChainHead.agent_id).where(ChainHead.agent_id.is_not(None))
    for agent in db.session.scalars(select(Agent).where(Agent.id.not_in(with_chain))):
        yield _verify_without_chain(agent)


def verify_agent(agent: Agent) -> Verified:
    """Check one agent's chain and memories."""
    head = db.session.scalar(select(ChainHead).where(ChainHead.agent_id == agent.id))
    return _verify(head) if head is not None else _verify_without_chain(agent)


def _verify(head: ChainHead) -> Verified:
    records = memories = 0
    digests: Digests = {}
    problem = None
    agent = db.session.get(Agent, head.agent_id) if head.agent_id is not None else None
    try:
        for record in _follow(head, WrappedKey.platform().open()):
            records += 1
            _note(record, digests)
        if agent is not None:
            memories = _verify_memories(agent, digests)
    except _Broken as broken:
        problem = str(broken)
    return Verified(head.name, records, memories, problem, head.id)


def stamp(verified: Verified) -> None:
    """Note on a chain that it was found whole, and how far."""
    if verified.chain_id is not None and verified.problem is None:
        db.session.execute(
            update(ChainHead)
            .where(ChainHead.id == verified.chain_id)
            .values(verified_sequence=verified.records, verified_at=clock.now())
        )


def _follow(head: ChainHead, platform: DataKey) -> Iterator[AuditLog]:
    """Yield the chain's records in order; _Broken at the first that is not what it must be."""
    sequence, link = 0, GENESIS
    chain = (
        select(AuditLog, cast(AuditLog.data, Text).label("data_text"))
        .options(undefer(AuditLog.sealed_text))
        .where(AuditLog.chain_id == head.id)
        .order_by(AuditLog.sequence, AuditLog.id)
        .execution_options(yield_per=_BATCH)
    )
    with db.session.execute(chain) as rows:
        for record, data in rows:
            sequence += 1
            if record.sequence != sequence:
                raise _Broken(
                    f"record {sequence} is missing "
                    f"(the next one is {record.sequence}, id {record.id})"
                )
            if record.hash != record.link(platform, link, data):
                raise _Broken(f"record {sequence} (id {record.id}) was altered, added or moved")
            link = record.hash
            yield record
    if (head.sequence, head.hash) != (sequence, link):
        raise _Broken(f"the chain ends at record {sequence}, its head says {head.sequence}")


def _note(record: AuditLog, digests: Digests) -> None:
    for memory in record.data.get("memories", []):
        digests[memory["id"]] = memory["after"]["digest"]


def _verify_memories(agent: Agent, digests: Digests) -> int:
    if agent.is_erased:
        return 0  # erased for good: only the skeleton is left to check
    checked = 0
    with db.session.scalars(
        select(AgentMemory)
        .where(AgentMemory.agent_id == agent.id)
        .order_by(AgentMemory.id)
        .execution_options(yield_per=_BATCH)
    ) as memories:
        for memory in memories:
            checked += 1
            if memory.row_digest != memory.digest_of_row():
                raise _Broken(f"memory {memory.id} was changed past the application")
            recorded = digests.pop(memory.id, None)
            if recorded is not None and recorded != memory.state_digest:
                raise _Broken(f"memory {memory.id} is not as its last record left it")
    if digests:
        raise _Broken(f"memory {min(digests)} has records, but is gone")
    return checked


def _verify_without_chain(agent: Agent) -> Verified:
    problem, memories = None, 0
    try:
        memories = _verify_memories(agent, {})
    except _Broken as broken:
        problem = str(broken)
    return Verified(f"agent {agent.id}", 0, memories, problem)
