"""Verification of everything that is kept: chains, memories against records, row digests."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import select

from refine import clock
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import ChainHead
from refine.models.audit.verification import (
    ChainBroken,
    headless_chains,
    mark_verified,
    verified_records,
)
from refine.models.ledger import AgentMemory, recorded_digests

_BATCH = 500

# Digests by memory id, as the last record left them.
Digests = dict[int, str]


@dataclass(frozen=True)
class Verified:
    """The result for one chain; ``problem`` names the first thing that is wrong."""

    name: str
    records: int
    memories: int
    problem: str | None
    chain_id: int | None = None


def verify_all() -> Iterator[Verified]:
    """Verify chain after chain, then the agents that have none.

    Reads one snapshot of the database, unless a transaction is open already.
    """
    if not db.session().in_transaction():
        db.session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    for head in db.session.scalars(select(ChainHead).order_by(ChainHead.id)).all():
        yield _verify(head)
    for chain_id in headless_chains():
        yield Verified(f"chain {chain_id}", 0, 0, "the chain has records, but its head is missing")
    with_chain = select(ChainHead.agent_id).where(ChainHead.agent_id.is_not(None))
    for agent in db.session.scalars(select(Agent).where(Agent.id.not_in(with_chain))):
        yield _verify_without_chain(agent)


def verify_agent(agent: Agent) -> Verified:
    """Verify one agent's chain and memories."""
    head = db.session.scalar(select(ChainHead).where(ChainHead.agent_id == agent.id))
    return _verify(head) if head is not None else _verify_without_chain(agent)


def stamp(verified: Verified) -> None:
    """Store how far a chain without a problem was verified."""
    if verified.chain_id is not None and verified.problem is None:
        mark_verified(verified.chain_id, verified.records, clock.now())


def _verify(head: ChainHead) -> Verified:
    records = memories = 0
    digests: Digests = {}
    problem = None
    agent = db.session.get(Agent, head.agent_id) if head.agent_id is not None else None
    try:
        for record in verified_records(head):
            records += 1
            digests |= recorded_digests(record.data)
        if agent is not None:
            memories = _verify_memories(agent, digests)
    except ChainBroken as broken:
        problem = str(broken)
    return Verified(head.name, records, memories, problem, head.id)


def _verify_memories(agent: Agent, digests: Digests) -> int:
    if agent.is_erased:
        return 0  # no key is left to check contents with
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
                raise ChainBroken(f"memory {memory.id} was changed outside the application")
            recorded = digests.pop(memory.id, None)
            if recorded is not None and recorded != memory.state_digest:
                raise ChainBroken(f"memory {memory.id} does not match its last record")
    if digests:
        raise ChainBroken(f"memory {min(digests)} has records, but is gone")
    return checked


def _verify_without_chain(agent: Agent) -> Verified:
    problem, memories = None, 0
    try:
        memories = _verify_memories(agent, {})
    except ChainBroken as broken:
        problem = str(broken)
    return Verified(f"agent {agent.id}", 0, memories, problem)
