"""Verifies all chains, and compares memories and all attested rows with them.

Chains are verified several at a time: with a few queries for all of them, in a snapshot that lasts
no longer than these take. Long chains are read in pages before, each in a transaction of its own.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from rq.timeouts import BaseTimeoutException
from sqlalchemy import Select, func, select
from sqlalchemy.orm import undefer

from refine import clock
from refine.extensions import db, read_plainly
from refine.models.agent import Agent
from refine.models.attested import plain_rows
from refine.models.attested_rows import OwnedRows, rows_of_accounts, rows_of_agents
from refine.models.audit import ChainHead, Verification
from refine.models.audit.chain_walk import (
    headless_chains,
    is_platform_chain_lost,
    mark_verified,
    next_chains,
    page_after,
    records_after,
)
from refine.models.audit.checkpoint import Checkpoint, still_there
from refine.models.audit.verification import ChainResult
from refine.models.chain_verification import ChainVerification
from refine.models.keys import WrappedKey
from refine.models.ledger import AgentMemory
from refine.models.ledger.stored import COLUMNS
from refine.models.people import Account
from refine.models.runs.session import RefinementSession
from refine.models.unreadable import unverifiable

_BATCH = 500
# So many chains are verified together.
_CHAINS = 200
_CHAIN_IS_GONE = "its audit chain is gone"


def verify_all(*, in_full: bool = True) -> Iterator[ChainResult]:
    """Verify chain after chain, then look for owners without one; leave out what is empty.

    ``in_full``: from the first record of each, or else from where it was verified before.
    """
    after_id = 0
    while results := verify_next(after_id, in_full=in_full):
        yield from without_empty(results)
        after_id = results[-1].chain_id or 0
    yield from problems_outside_chains()


def batches_of_chains() -> Iterator[list[int]]:
    """Yield the ids of all chains, as many at a time as are verified together."""
    after_id = 0
    while chain_ids := next_chains(after_id, at_most=_CHAINS):
        yield chain_ids
        after_id = chain_ids[-1]


def without_empty(results: list[ChainResult]) -> list[ChainResult]:
    """Leave out chains without records and memories: there is nothing to say about them."""
    return [each for each in results if each.records or each.memories or each.problem is not None]


def problems_outside_chains() -> Iterator[ChainResult]:
    """Yield each chain without a head, owner without a chain, and altered verification."""
    for chain_id in headless_chains():
        yield _problem(f"chain {chain_id}", "the chain has records, but its head is missing")
    for owner, reference in ((Agent, ChainHead.agent_id), (Account, ChainHead.account_id)):
        with_chain = select(reference).where(reference.is_not(None))
        for owner_id in db.session.scalars(select(owner.id).where(owner.id.not_in(with_chain))):
            yield _problem(f"{owner.__name__.lower()} {owner_id}", _CHAIN_IS_GONE)
    if is_platform_chain_lost():
        yield _problem("platform", _CHAIN_IS_GONE)
    for altered in Verification.altered():
        yield _problem(f"verification {altered.id}", "it was changed outside the application")


def verify_next(after_id: int, *, in_full: bool) -> list[ChainResult]:
    """Verify the next few chains; an empty list if none is left.

    Unless a transaction is open, they are verified in short ones.
    """
    is_ours = not db.session().in_transaction()
    chain_ids = next_chains(after_id, at_most=_CHAINS)
    if is_ours:
        db.session.commit()
    return verify_chains(chain_ids, in_full=in_full) if chain_ids else []


def verify_chains(chain_ids: Collection[int], *, in_full: bool = True) -> list[ChainResult]:
    """Verify these chains, and the memories and rows of their owners against them.

    Whatever goes wrong is a problem of one chain alone: a row that cannot even be read must not
    keep others from being verified.
    """
    is_ours = not db.session().in_transaction()
    WrappedKey.platform_key()  # without it nothing can be verified
    try:
        return _verify_together(chain_ids, in_full, is_ours)
    except BaseTimeoutException:  # the job took too long, which says nothing about the chain
        raise
    except Exception as error:
        if is_ours:
            db.session.rollback()
        if len(chain_ids) > 1:
            return [verify_chains([id_], in_full=in_full)[0] for id_ in chain_ids]
        return [unverifiable(id_, error) for id_ in chain_ids]
    finally:
        if is_ours:
            db.session.commit()


def note_verified(*results: ChainResult) -> None:
    """Note how far chains without a problem were verified."""
    sound = {each.chain_id: each for each in results if each.problem is None and each.chain_id}
    positions = {id_: each.position for id_, each in sound.items() if each.position is not None}
    memories = {id_: each.memories for id_, each in sound.items()}
    mark_verified(positions, memories, clock.now())


# -- several chains ------------------------------------------------------------------------------


def _verify_together(chain_ids: Collection[int], in_full: bool, is_ours: bool) -> list[ChainResult]:
    chains = _begun(chain_ids, in_full)
    if len(chains) == 1:
        _read_in_pages(next(iter(chains.values())), is_ours)
    if is_ours:
        db.session.commit()
        db.session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    with db.session.begin_nested():
        _compare(chains)
    return [chain.result() for chain in chains.values()]


def _begun(chain_ids: Collection[int], in_full: bool) -> dict[int, ChainVerification]:
    checkpoints = Checkpoint.of(chain_ids)
    genuine = {id_: each.position for id_, each in checkpoints.items() if each.is_genuine}
    goes_on = set() if in_full else still_there(genuine)
    chains = {}
    for id_ in sorted(chain_ids):
        chains[id_] = ChainVerification(id_, verified=genuine.get(id_), goes_on=id_ in goes_on)
        if not in_full and id_ in checkpoints.keys() - genuine.keys():
            chains[id_].last_problem = "the chain's checkpoint was changed outside the application"
    return chains


def _read_in_pages(chain: ChainVerification, is_ours: bool) -> None:
    """Read the records of a chain that may be long."""
    while chain.problem is None and (page := page_after(chain.id, chain.walk.reads_after)):
        chain.attempt(chain.read, page)
        if is_ours:
            db.session.commit()


def _compare(chains: dict[int, ChainVerification]) -> None:
    """Read what is left of the records, then everything that they tell of, in one snapshot."""
    heads = select(ChainHead).where(ChainHead.id.in_(chains))
    for head in db.session.scalars(heads.execution_options(populate_existing=True)):
        chains[head.id].head = head
    records = records_after({id_: each.walk.reads_after for id_, each in chains.items()})
    for id_, mine in groupby(records, attrgetter("chain_id")):
        chains[id_].attempt(chains[id_].read, mine)
    for chain in chains.values():
        chain.attempt(chain.end)
    agents = {each.head.agent_id: each for each in chains.values() if each.head.agent_id}
    accounts = {each.head.account_id: each for each in chains.values() if each.head.account_id}
    _compare_memories({id_: each for id_, each in agents.items() if each.problem is None})
    _compare_rows(rows_of_agents(agents), agents)
    _compare_rows(rows_of_accounts(accounts), accounts)
    for chain in chains.values():
        chain.attempt(chain.miss_no_row)


def _compare_memories(chains: dict[int, ChainVerification]) -> None:
    """Compare agents and their memories with their records; by id of the agent."""
    whole = select(Agent).options(undefer("*"))  # a digest covers all
    for agent in db.session.scalars(whole.where(Agent.id.in_(chains))):
        chains[agent.id].agent = agent
    for chain in chains.values():
        chain.attempt(chain.open)
    opened = [id_ for id_, chain in chains.items() if chain.key is not None]
    memories = select(*map(read_plainly, COLUMNS)).where(AgentMemory.agent_id.in_(opened))
    memories = memories.order_by(AgentMemory.agent_id, AgentMemory.id)
    with _read(memories, in_parts=len(chains) == 1) as rows:
        for id_, mine in groupby(rows, attrgetter("agent_id")):
            chains[id_].attempt(chains[id_].compare_memories, mine)
    newest = _newest_sessions(opened)
    for id_ in opened:
        chains[id_].attempt(chains[id_].miss_no_memory)
        chains[id_].attempt(chains[id_].compare_figures, newest.get(id_))


def _newest_sessions(agent_ids: Collection[int]) -> dict[int, datetime]:
    newest = select(RefinementSession.agent_id, func.max(RefinementSession.created_at).label("at"))
    mine = newest.where(RefinementSession.agent_id.in_(agent_ids))
    found = db.session.execute(mine.group_by(RefinementSession.agent_id))
    return {row.agent_id: row.at for row in found}


def _compare_rows(rows_of: OwnedRows, chains: dict[int, ChainVerification]) -> None:
    """Compare attested rows with the records; by id of the owner."""
    for kind, (owner_id, mine) in rows_of.items() if chains else ():
        rows = plain_rows(kind, owner_id.label("owner_id")).where(mine).order_by(kind.id)
        with _read(rows, in_parts=len(chains) == 1) as found:
            for row in found:
                chains[row.owner_id].attempt(chains[row.owner_id].compare_row, kind, row)


@contextmanager
def _read(query: Select[Any], *, in_parts: bool) -> Iterator[Iterable[Any]]:
    """Read rows at once, or those of a chain by itself, which may be many, in parts."""
    options = {"yield_per": _BATCH} if in_parts else {}
    with db.session.connection().execute(query, execution_options=options) as found:
        yield found if in_parts else found.all()


def _problem(name: str, problem: str) -> ChainResult:
    return ChainResult(name, records=0, memories=0, problem=problem)
