"""Verifies chains, and compares memories and all attested rows with them."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, TypeVar

from rq.timeouts import BaseTimeoutException
from sqlalchemy import ColumnElement, and_, select

from refine import clock
from refine.errors import RefineError
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.attested import Attested
from refine.models.audit import AuditLog, ChainHead, Verification
from refine.models.audit.chain_walk import (
    ChainBroken,
    headless_chains,
    is_platform_chain_lost,
    mark_verified,
    verified_records,
)
from refine.models.audit.verification import ChainResult
from refine.models.clients import ApiToken
from refine.models.columns import DigestChange
from refine.models.keys import WrappedKey
from refine.models.ledger import AgentMemory, recorded_digests
from refine.models.people import Account, Invitation, SignIn, User
from refine.models.runs.access import AccessGrant
from refine.models.runs.session import RefinementSession
from refine.models.runs.sweep import Sweep

_BATCH = 500
_CHAIN_IS_GONE = "its audit chain is gone"

# Digests by memory id, and by the name of any other row, as the last record left them.
Digests = dict[int, str | None]
RowDigests = dict[str, str | None]
_Key = TypeVar("_Key", int, str)


def verify_all() -> Iterator[ChainResult]:
    """Verify chain after chain, then look for owners without one; leave out what is empty.

    Reads one snapshot of the database, unless a transaction is open already.
    """
    if not db.session().in_transaction():
        db.session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    for chain_id in db.session.scalars(select(ChainHead.id).order_by(ChainHead.id)).all():
        found = verify_chain(chain_id)
        if found.records or found.memories or found.problem is not None:
            yield found
    yield from problems_outside_chains()


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


def verify_chain(chain_id: int) -> ChainResult:
    """Verify one chain, and the memories and rows of its owner against it.

    Whatever goes wrong is a problem of this chain alone: a row that cannot even be read must not
    keep others from being verified.
    """
    WrappedKey.platform_key()  # without it nothing can be verified
    verified = _Verifying(chain_id)
    problem = None
    try:
        with db.session.begin_nested():
            verified.run()
    except ChainBroken as broken:
        problem = str(broken)
    except BaseTimeoutException:  # the job took too long, which says nothing about the chain
        raise
    except Exception as error:
        said = str(error) if isinstance(error, RefineError) else type(error).__name__
        unreadable = _first_unreadable(chain_id)
        problem = f"{unreadable} cannot be read" if unreadable else f"it cannot be verified: {said}"
    return ChainResult(verified.name, verified.records, verified.memories, problem, chain_id)


class _Verifying:
    """The verification of one chain, and how far it came."""

    def __init__(self, chain_id: int) -> None:
        self._chain_id = chain_id
        self.name = f"chain {chain_id}"
        self.records = self.memories = 0

    def run(self) -> None:
        """Verify it; ChainBroken tells the first problem."""
        head = db.session.get_one(ChainHead, self._chain_id)
        self.name = head.name
        digests: Digests = {}
        rows: RowDigests = {}
        was_erased = False
        with closing(verified_records(head)) as records:
            for record in records:
                self.records += 1
                for id_, change in recorded_digests(record.data).items():
                    _follow(digests, id_, change, f"memory {id_}", record)
                for name, change in (record.rows or {}).items():
                    _follow(rows, name, change, name, record)
                was_erased |= record.action == "agent_erased"
        if head.agent_id is not None:
            self.memories = _verify_memories(head, digests, was_erased=was_erased)
        _verify_rows(head, rows)


def _follow(
    digests: dict[_Key, str | None], key: _Key, change: DigestChange, name: str, record: AuditLog
) -> None:
    """Take over the digest after a change; ChainBroken if it began with another than the last."""
    before, after = change
    if digests.get(key, before) != before:
        raise ChainBroken(f"{name} was set back before record {record.sequence}")
    digests[key] = after


def note_verified(result: ChainResult) -> None:
    """Note how far a chain without a problem was verified."""
    if result.chain_id is not None and result.problem is None:
        mark_verified(result.chain_id, result.records, result.memories, clock.now())


def _verify_memories(head: ChainHead, digests: Digests, *, was_erased: bool) -> int:
    agent = db.session.get(Agent, head.agent_id)
    if agent is None:
        raise ChainBroken("the agent is gone")
    if agent.is_erased:
        if not was_erased:
            raise ChainBroken("the data key was destroyed without a record")
        return 0  # no key is left to check contents with
    if was_erased:
        raise ChainBroken("the data key was destroyed, but is back")
    if not agent.is_genuine:
        raise ChainBroken(f"{agent.row_name} was changed outside the application")
    checked = 0
    kept: list[int] = []
    with db.session.scalars(
        select(AgentMemory)
        .where(AgentMemory.agent_id == agent.id)
        .order_by(AgentMemory.id)
        .execution_options(yield_per=_BATCH)
    ) as memories:
        for memory in memories:
            checked += 1
            if memory.is_kept_core:
                kept.append(memory.token_estimate)
            if not memory.is_genuine:
                raise ChainBroken(f"memory {memory.id} was changed outside the application")
            recorded = digests.pop(memory.id, None)
            if recorded is not None and recorded != memory.state_digest:
                raise ChainBroken(f"memory {memory.id} does not match its last record")
    if digests:
        raise ChainBroken(f"memory {min(digests)} has records, but is gone")
    if checked < head.verified_memories:
        missing = head.verified_memories - checked
        raise ChainBroken(f"{missing} of {head.verified_memories} verified memories are gone")
    _verify_figures(agent, kept)
    return checked


def _verify_figures(agent: Agent, kept_tokens: list[int]) -> None:
    if agent.ledger.core_totals() != (len(kept_tokens), sum(kept_tokens)):
        raise ChainBroken("the figures on the agent's row are not those of its memories")
    last = RefinementSession.newest_of(agent)
    if agent.last_session_at != (last.created_at if last is not None else None):
        raise ChainBroken("the last session on the agent's row is another")


def _verify_rows(head: ChainHead, recorded: RowDigests) -> None:
    for kind, mine in _conditions(head.agent_id, head.account_id).items():
        rows = select(kind).where(mine)
        rows = rows.execution_options(yield_per=_BATCH, populate_existing=True)
        with db.session.scalars(rows) as found:
            for row in found:
                _verify_row(row, recorded)
    if recorded:
        raise ChainBroken(f"{min(recorded)} has records, but is gone")


def _verify_row(row: Attested, recorded: RowDigests) -> None:
    if row.row_digest != row.digest_of_row():
        raise ChainBroken(f"{row.row_name} was changed outside the application")
    if recorded.pop(row.row_name, row.row_digest) != row.row_digest:
        raise ChainBroken(f"{row.row_name} does not match its last record")


def attested_kinds() -> list[type[Attested]]:
    """Return every kind of row with a digest."""
    of_owners = (*_conditions(None, 0), *_conditions(0, None))
    return [*dict.fromkeys(of_owners), Verification]


def _conditions(
    agent_id: int | None, account_id: int | None
) -> dict[type[Attested], ColumnElement[bool]]:
    """Return which attested rows belong to an agent, or else to an account."""
    if agent_id is not None:
        return {
            Agent: Agent.id == agent_id,
            RefinementSession: RefinementSession.agent_id == agent_id,
            AccessGrant: AccessGrant.agent_id == agent_id,
            ApiToken: ApiToken.agent_id == agent_id,
        }
    if account_id is None:
        return {}
    users = select(User.id).where(User.account_id == account_id)
    return {
        Account: Account.id == account_id,
        User: User.account_id == account_id,
        ApiToken: and_(ApiToken.account_id == account_id, ApiToken.agent_id.is_(None)),
        Invitation: Invitation.user_id.in_(users),
        SignIn: SignIn.user_id.in_(users),
        Sweep: Sweep.account_id == account_id,
    }


def _first_unreadable(chain_id: int) -> str | None:
    """Return the name of the first row that cannot be loaded, of a chain and its owner."""
    if not _can_be_read(ChainHead, ChainHead.id == chain_id):
        return "the chain's head"
    head = db.session.get_one(ChainHead, chain_id)
    mine_of: dict[Any, ColumnElement[bool]] = {AuditLog: AuditLog.chain_id == chain_id}
    mine_of |= _conditions(head.agent_id, head.account_id)
    if head.agent_id is not None:
        mine_of[AgentMemory] = AgentMemory.agent_id == head.agent_id
    for kind, mine in mine_of.items():
        if not _can_be_read(kind, mine):
            ids = db.session.scalars(select(kind.id).where(mine).order_by(kind.id)).all()
            while len(ids) > 1:
                half = ids[: len(ids) // 2]
                is_later = _can_be_read(kind, mine, kind.id.between(half[0], half[-1]))
                ids = ids[len(half) :] if is_later else half
            return f"{kind.__name__} {ids[0]}"
    return None


def _can_be_read(kind: Any, *mine: Any) -> bool:
    rows = select(kind).where(*mine).execution_options(yield_per=_BATCH, populate_existing=True)
    try:
        with db.session.begin_nested(), db.session.scalars(rows) as found:
            for _ in found:
                pass
    except BaseTimeoutException:
        raise
    except Exception:
        return False
    return True


def _problem(name: str, problem: str) -> ChainResult:
    return ChainResult(name, records=0, memories=0, problem=problem)
