"""Verifies all chains in batches, each in one snapshot, with their memories and attested rows."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, literal, select, update
from sqlalchemy.orm import undefer

from refine.errors import RefineError, SealingError
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.attested import Attested, plain_rows
from refine.models.audit import AuditLog, ChainHead
from refine.models.audit.record import plain_records
from refine.models.audit.verification import ChainResult
from refine.models.chain_verification import ChainVerification
from refine.models.clients import ApiToken
from refine.models.ledger.memory import AgentMemory
from refine.models.outbox import Endpoint
from refine.models.people import Account, Invitation, SecondFactor, SignIn, User
from refine.models.runs.access.grant import AccessGrant
from refine.models.runs.session.session import RefinementSession

# The most chains, and records, that are verified together.
CHAINS_AT_ONCE = 200
RECORDS_AT_ONCE = 10_000
# How many rows are fetched at once.
PAGE = 1_000
_CHAIN_IS_GONE = "its audit chain is gone"

# For each kind of row: the column of its chain's owner, and the condition that selects the rows.
OwnedRows = dict[type[Attested], tuple[Any, ColumnElement[bool]]]
Chains = dict[int, ChainVerification]


def verify_all() -> Iterator[ChainResult]:
    """Verify chain after chain, then look for owners without one."""
    for chain_ids in batches_of_chains():
        yield from verify_chains(chain_ids)
    yield from problems_outside_chains()


def batches_of_chains(after_id: int = 0) -> Iterator[list[int]]:
    """Yield the ids of all chains after this one, in batches to be verified together."""
    while True:
        is_ours = not db.session().in_transaction()
        chain_ids = _next_chains(after_id)
        if is_ours:  # so that each batch is verified in a snapshot of its own
            db.session.rollback()
        if not chain_ids:
            return
        yield chain_ids
        after_id = chain_ids[-1]


def _next_chains(after_id: int) -> list[int]:
    following = select(ChainHead.id, ChainHead.sequence).where(ChainHead.id > after_id)
    chosen: list[int] = []
    records = 0
    for id_, length in db.session.execute(following.order_by(ChainHead.id).limit(CHAINS_AT_ONCE)):
        records += length
        if chosen and records > RECORDS_AT_ONCE:
            break
        chosen.append(id_)
    return chosen


def verify_chains(chain_ids: Collection[int]) -> list[ChainResult]:
    """Verify chains and their owners' rows; a fault stays a problem of one chain alone."""
    try:
        with snapshot():
            return _verify(chain_ids)
    except SealingError:  # the platform's key cannot be opened: no problem of one chain
        raise
    except Exception as error:
        if len(chain_ids) > 1:
            return [verify_chains([id_])[0] for id_ in chain_ids]
        said = str(error) if isinstance(error, RefineError) else type(error).__name__
        problem = f"a row of it, or of its owner, cannot be read ({said})"
        return [_problem(f"chain {id_}", problem, id_) for id_ in chain_ids]


def problems_outside_chains() -> Iterator[ChainResult]:
    """Yield each chain without a head, and each owner without a chain."""
    headless = select(AuditLog.chain_id).where(AuditLog.chain_id.not_in(select(ChainHead.id)))
    for chain_id in db.session.scalars(headless.distinct()):
        yield _problem(f"chain {chain_id}", "the chain has records, but its head is missing")
    for owner, reference in ((Agent, ChainHead.agent_id), (Account, ChainHead.account_id)):
        with_chain = select(reference).where(reference.is_not(None))
        for owner_id in db.session.scalars(select(owner.id).where(owner.id.not_in(with_chain))):
            yield _problem(f"{owner.__name__.lower()} {owner_id}", _CHAIN_IS_GONE)
    is_platform = and_(ChainHead.account_id.is_(None), ChainHead.agent_id.is_(None))
    # it begins with the first of all
    if db.session.scalar(select(func.bool_or(is_platform))) is False:
        yield _problem("platform", _CHAIN_IS_GONE)


def note_verified(results: Iterable[ChainResult], at: datetime) -> None:
    """Store the progress of clean chains; skip locked heads, whose holders may wait for others."""
    sound = [each for each in results if each.chain_id is not None and each.problem is None]
    if not sound:
        return
    lengths = {each.chain_id: each.records for each in sound}
    unlocked = select(ChainHead.id).where(ChainHead.id.in_(lengths))
    marked = (
        update(ChainHead)
        .where(ChainHead.id.in_(unlocked.with_for_update(skip_locked=True)))
        .values(verified_sequence=case(lengths, value=ChainHead.id), verified_at=at)
    )
    db.session.execute(marked, execution_options={"synchronize_session": False})


def attested_kinds() -> list[type[Attested]]:
    return list({**_rows_of_accounts(()), **_rows_of_agents(())})


# -- several chains ------------------------------------------------------------------------------


@contextmanager
def snapshot() -> Iterator[None]:
    """Let all queries see one moment: in a transaction of its own, unless one is open."""
    if db.session().in_transaction():
        yield
        return
    db.session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    try:
        yield
    finally:
        db.session.rollback()


def _verify(chain_ids: Collection[int]) -> list[ChainResult]:
    heads = select(ChainHead).where(ChainHead.id.in_(chain_ids)).order_by(ChainHead.id)
    found = db.session.scalars(heads.execution_options(populate_existing=True))
    chains = {head.id: ChainVerification(head) for head in found}
    records_of = plain_records().where(AuditLog.chain_id.in_(chain_ids))
    in_order = records_of.order_by(AuditLog.chain_id, AuditLog.sequence, AuditLog.id)
    for id_, records in groupby(_rows(in_order), attrgetter("chain_id")):
        chains[id_].attempt(chains[id_].read, records)
    for chain in chains.values():
        chain.attempt(chain.end)
    agents = {each.head.agent_id: each for each in chains.values() if each.head.agent_id}
    accounts = {each.head.account_id: each for each in chains.values() if each.head.account_id}
    _compare_memories({id_: each for id_, each in agents.items() if each.problem is None})
    _compare_rows(_rows_of_agents(agents), agents)
    _compare_rows(_rows_of_accounts(accounts), accounts)
    platform = [id_ for id_, each in chains.items() if each.head.name == "platform"]
    for id_ in platform:
        of_all_accounts = and_(ApiToken.account_id.is_(None), ApiToken.agent_id.is_(None))
        _compare_rows({ApiToken: (literal(id_), of_all_accounts)}, chains)
    for chain in chains.values():
        chain.attempt(chain.check_missing_rows)
    return [
        ChainResult(each.head.name, each.records, each.memories, each.problem, id_)
        for id_, each in chains.items()
    ]


def _compare_memories(chains: Chains) -> None:
    whole = select(Agent).options(undefer("*"))  # a digest covers all
    for agent in db.session.scalars(whole.where(Agent.id.in_(chains))):
        chains[agent.id].agent = agent
    for chain in chains.values():
        chain.attempt(chain.open)
    opened = [id_ for id_, chain in chains.items() if chain.key is not None]
    memories = plain_rows(AgentMemory).where(AgentMemory.agent_id.in_(opened))
    in_order = memories.order_by(AgentMemory.agent_id, AgentMemory.id)
    for id_, mine in groupby(_rows(in_order), attrgetter("agent_id")):
        chains[id_].attempt(chains[id_].compare_memories, chains[id_].key, mine)
    newest = select(RefinementSession.agent_id, func.max(RefinementSession.created_at).label("at"))
    theirs = newest.where(RefinementSession.agent_id.in_(opened))
    found = db.session.execute(theirs.group_by(RefinementSession.agent_id))
    newest_at = {row.agent_id: row.at for row in found}
    for id_ in opened:
        chain = chains[id_]
        chain.attempt(chain.compare_figures, chain.agent, newest_at.get(id_))


def _compare_rows(rows_of: OwnedRows, chains: Chains) -> None:
    for kind, (owner_id, mine) in rows_of.items() if chains else ():
        for row in _rows(plain_rows(kind, owner_id.label("owner_id")).where(mine)):
            chains[row.owner_id].attempt(chains[row.owner_id].compare_row, kind, row)


def _rows_of_agents(ids: Collection[int]) -> OwnedRows:
    owner_ids: dict[type[Attested], Any] = {
        Agent: Agent.id,
        RefinementSession: RefinementSession.agent_id,
        AccessGrant: AccessGrant.agent_id,
        ApiToken: ApiToken.agent_id,
    }
    return {kind: (owner_id, owner_id.in_(ids)) for kind, owner_id in owner_ids.items()}


def _rows_of_accounts(ids: Collection[int]) -> OwnedRows:
    users = select(User.id).where(User.account_id.in_(ids))
    account_of_user = {
        kind: select(User.account_id).where(User.id == kind.user_id).scalar_subquery()
        for kind in (Invitation, SecondFactor, SignIn)
    }
    of_platform_token = and_(ApiToken.account_id.in_(ids), ApiToken.agent_id.is_(None))
    return {
        Account: (Account.id, Account.id.in_(ids)),
        User: (User.account_id, User.account_id.in_(ids)),
        ApiToken: (ApiToken.account_id, of_platform_token),
        Invitation: (account_of_user[Invitation], Invitation.user_id.in_(users)),
        SecondFactor: (account_of_user[SecondFactor], SecondFactor.user_id.in_(users)),
        SignIn: (account_of_user[SignIn], SignIn.user_id.in_(users)),
        Endpoint: (Endpoint.account_id, Endpoint.account_id.in_(ids)),
    }


def _rows(query: Select[Any]) -> Iterator[SimpleNamespace]:
    """Yield plain objects: their many attributes are read faster than those of SQLAlchemy's."""
    with db.session.connection().execute(query, execution_options={"yield_per": PAGE}) as found:
        names = list(found.keys())
        for row in found:
            yield SimpleNamespace(**dict(zip(names, row, strict=True)))


def _problem(name: str, problem: str, chain_id: int | None = None) -> ChainResult:
    return ChainResult(name, records=0, memories=0, problem=problem, chain_id=chain_id)
