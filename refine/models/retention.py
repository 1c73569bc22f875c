"""How long an account keeps journals, and what was said in sessions. What conversations said that
were handed over goes as soon as they were read or given up.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, literal, or_, select, union_all, update

from refine.extensions import UtcDateTime, db
from refine.models.agent import Agent
from refine.models.agent.eligibility import is_readable
from refine.models.audit import AuditLog
from refine.models.erasing import UNSAID, erasure_of
from refine.models.ledger.memory import JOURNAL_SHOWN_FOR, AgentMemory, change_memories
from refine.models.people import Account
from refine.models.runs.session.session import RefinementSession

# How many memories of an agent are erased in one transaction.
BATCH = 500

_ERASED = "retention_erased"


def _old_journal(at: datetime, months: Any) -> ColumnElement[bool]:
    """Match what expired so long ago, whatever date it was given, unless it is locked."""
    since = _ago(at - JOURNAL_SHOWN_FOR, months)
    is_old = and_(AgentMemory.created_at < since, AgentMemory.recorded_at < since)
    is_journal = AgentMemory.memory_type == "journal"
    return and_(is_journal, is_old, ~AgentMemory.is_erased, ~AgentMemory.is_locked)


def _old_session(at: datetime, months: Any) -> ColumnElement[bool]:
    said = or_(*(column.is_not(None) for column in UNSAID))
    return and_(RefinementSession.ended_at < _ago(at, months), said)


def _ago(at: datetime, months: Any) -> ColumnElement[datetime]:
    return literal(at, UtcDateTime()) - func.make_interval(0, months)


def _old_of_agents(at: datetime, months: Any) -> list[Select[int]]:
    """Select the agent of each memory, and of each session, with something to erase."""
    return [
        select(kind.agent_id)
        .join(Agent, Agent.id == kind.agent_id)
        .join(Account, Account.id == Agent.account_id)
        .where(is_old)
        for kind, is_old in (
            (AgentMemory, _old_journal(at, months)),
            (RefinementSession, _old_session(at, months)),
        )
    ]


def counts(account: Account, at: datetime, months: int) -> Select[*tuple[Any, ...]]:
    """Select the agents of whom something would go, and how much of each kind."""
    numbers, found = [], select(Agent.id, Agent.name)
    for old in _old_of_agents(at, months):
        # counted for all together: for each agent anew, it would read all memories
        mine = old.where(Account.id == account.id).add_columns(func.count().label("number"))
        c = mine.group_by(mine.selected_columns[0]).subquery().c
        found = found.outerjoin(c.number.table, c.agent_id == Agent.id)
        numbers.append(func.coalesce(c.number, 0))
    memories, sessions = numbers
    found = found.add_columns(memories.label("memories"), sessions.label("sessions"))
    those = Agent.account_id == account.id, is_readable(), memories + sessions > 0
    return found.where(*those).order_by(func.lower(Agent.name), Agent.id)


def due(at: datetime) -> Select[int]:
    """Select the agents with something to erase, by the database's clock too."""
    by_both = func.least(at, func.clock_timestamp(type_=UtcDateTime()))
    is_due = Account.retention_from <= by_both
    old = [each.where(is_due) for each in _old_of_agents(at, Account.kept_months)]
    return select(Agent.id).where(is_readable(), Agent.id.in_(union_all(*old)))


def erase_old(agent: Agent, at: datetime) -> int:
    """Erase a batch of what the locked agent has, tell it once; return how many memories went."""
    agent.require_own("account")
    months = agent.account.kept_months
    old = AgentMemory.agent_id == agent.id, _old_journal(at, months)
    ids = select(AgentMemory.id).where(*old).order_by(AgentMemory.id).limit(BATCH)
    rows = AgentMemory.lock_rows(agent, db.session.scalars(ids))
    said = RefinementSession.agent_id == agent.id, _old_session(at, months)
    unsaid = update(RefinementSession).where(*said).values(dict.fromkeys(UNSAID))
    sessions = len(db.session.scalars(unsaid.returning(RefinementSession.id)).all())
    _tell_once(agent, months, at)
    change_memories(
        _ERASED,
        [erasure_of(memory, at) for memory in rows.values()],
        agent=agent,
        locked=rows,
        data={"by": "account", "months": months, "journal": len(rows), "sessions": sessions},
        subject=agent,
        at=at,
    )
    return len(rows)


def _tell_once(agent: Agent, months: int | None, at: datetime) -> None:
    told = select(AuditLog.data).where(AuditLog.agent_id == agent.id, AuditLog.action == _ERASED)
    last = db.session.scalar(told.order_by(AuditLog.sequence.desc()).limit(1))
    if last is None or last["months"] != months:
        agent.ledger.add_journal_note(
            f"My account keeps expired journal memories, and what I said in sessions, for {months} "
            "months. What is older is erased for good; core memories stay.",
            at,
        )
