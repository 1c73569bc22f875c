"""What agents correct themselves, outside sessions: recorded, restorable, told in the journal."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Select, and_, func, literal, or_, select

from refine import clock, settings
from refine.errors import NotFound, Refused
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.ledger.image import Change, retired
from refine.models.ledger.ledger import removed_outside_sessions
from refine.models.ledger.memory import (
    CORE,
    CORRECTION,
    NOTE,
    AgentMemory,
    added,
    change_memories,
    content_hash,
)
from refine.models.runs.session.session import ROLLING_WINDOW, RefinementSession
from refine.rules.content import memory_content
from refine.rules.meaning import LedgerTexts, speak_of_the_same
from refine.rules.quantities import in_days
from refine.rules.retention import removable_under_floor, removable_under_threshold
from refine.rules.second_reading import Reason

DAY = timedelta(days=1)


def correct(
    agent: Agent,
    memory_id: int,
    content: object,
    reason: Reason = "wrong",
    at: datetime | None = None,
) -> AgentMemory:
    """Put a new memory in place of one that the agent keeps; NotFound, Refused."""
    at, content = at or clock.now(), memory_content(content)
    memory = _own(agent, memory_id, "correct")
    hashed = content_hash(content, agent.data_key())
    same = agent.ledger.core().where(AgentMemory.content_hash == hashed).limit(1)
    if (copy := memory if memory.content == content else db.session.scalar(same)) is not None:
        raise Refused(f"Memory #{copy.id} has exactly this content already; nothing was changed")
    new = AgentMemory(
        agent=agent,
        content=content,
        memory_type=memory.memory_type,
        tags=list(memory.tags),
        source=CORRECTION,
        created_at=at if reason == "outdated" else memory.created_at,
        spans_until=None if reason == "outdated" else memory.spans_until,
        recorded_at=at,
        updated_at=at,
    )
    # what speaks of something else is no correction: it counts as forgetting
    is_related = speak_of_the_same(LedgerTexts(), memory.content, content)
    removed = refuse_too_much(agent, [memory], at, new.token_estimate if is_related else 0)
    _set_aside("memory_corrected", memory, reason, removed, at, added(new))
    agent.ledger.add_journal_note(
        f"I corrected memory #{memory_id} ({reason}): it is #{new.id} now. {_RESTORABLE}", at
    )
    return new


def forget(
    agent: Agent, memory_id: int, reason: Reason = "outdated", at: datetime | None = None
) -> AgentMemory:
    """Set aside a memory that the agent keeps; NotFound, Refused."""
    at = at or clock.now()
    memory = _own(agent, memory_id, "forget")
    removed = refuse_too_much(agent, [memory], at)
    _set_aside("memory_forgotten", memory, reason, removed, at)
    agent.ledger.add_journal_note(f"I forgot memory #{memory_id} ({reason}). {_RESTORABLE}", at)
    return memory


_RESTORABLE = "What it said can be restored."


def _own(agent: Agent, memory_id: int, verb: str) -> AgentMemory:
    db.session.flush()
    agent.lock()
    if (live := RefinementSession.live_of(agent)) is not None:
        live.lock()
    rows = AgentMemory.lock_rows(agent, [memory_id])
    memory = written_by_agent(
        {id_: row for id_, row in rows.items() if not row.discarded}, memory_id
    )
    if memory.edit_lock is not None:
        raise Refused(f"Cannot {verb} {memory.edit_lock} memory #{memory_id}")
    if live is not None and memory.session_id == live.id:  # a rollback would restore its sources
        raise Refused(
            f"Cannot {verb} memory #{memory_id} before the session that made it has ended"
        )
    return memory


def written_by_agent(rows: Mapping[int, AgentMemory], memory_id: int) -> AgentMemory:
    """Return one of these; NotFound, also for Refine's own notes."""
    memory = rows.get(memory_id)
    if memory is None or memory.source == NOTE:
        raise NotFound(f"Memory #{memory_id} not found; nothing was changed")
    return memory


def _set_aside(
    action: str, memory: AgentMemory, reason: Reason, removed: int, at: datetime, *created: Change
) -> None:
    before, new_id = memory.image(), created[0].memory_id if created else None
    change_memories(
        action,
        [Change(memory.id, before, retired(before, reason, new_id, at)), *created],
        agent=memory.agent,
        locked={memory.id: memory},
        subject=memory,
        data={"reason": reason, "removed_tokens": removed},
        at=at,
    )


# -- the circuit breaker by day -------------------------------------------------------------------


def refuse_too_much(
    agent: Agent, memories: Iterable[AgentMemory], at: datetime, kept_tokens: int = 0
) -> int:
    """Return how many tokens a removal counts; Refused if they are too many.

    Of what stood a day ago, as much may go in 24 hours as the agent's threshold lets go; what was
    saved since is free, and pays for nothing. The rolling floor holds for this and a live session
    together: what goes here, that session may not remove any more.
    """
    since, mass, floor = at - DAY, agent.core_token_usage, settings.current().rolling_floor
    stood = sum(_stood_tokens(each, since) for each in memories if each.is_kept_core)
    tokens = max(0, stood - kept_tokens)
    today = removed_outside_sessions(agent.id, since).where(~_BY_OPERATOR)
    removed, standing = db.session.scalar(today) or 0, _mass_at(agent, since)
    by_day = removable_under_threshold(standing, agent.threshold) - removed
    recently, live = RefinementSession.removed_recently(agent, at), RefinementSession.live_of(agent)
    if live is not None:
        live.require_genuine()
        recently += live.removed_tokens
    by_floor = removable_under_floor(min(mass, standing - removed), floor, recently)
    if tokens > (left := max(0, min(by_day, by_floor))):
        raise Refused(
            f"Nothing was changed: this would remove {tokens} tokens, and at most {left} may go "
            f"now{_more_later(today, is_of_day=by_day <= by_floor)}"
        )
    if live is not None and tokens:
        left = removable_under_floor(mass, floor, recently) - tokens
        live.removable_tokens = min(live.removable_tokens, live.removed_tokens + left)
    return tokens


_BY_OPERATOR = AuditLog.data["by"].as_string().is_not_distinct_from("command line")


def _mass_at(agent: Agent, at: datetime) -> int:
    """Return the token mass of what stood then, without what went within a day of its saving."""
    recorded_at, went_at = AgentMemory.recorded_at, AgentMemory.discarded_at
    stood = select(func.sum(AgentMemory.token_estimate)).where(
        AgentMemory.agent_id == agent.id,
        AgentMemory.memory_type == CORE,
        recorded_at <= at,
        or_(~AgentMemory.discarded, and_(went_at > at, went_at > recorded_at + literal(DAY))),
    )
    return db.session.scalar(stood) or 0


def _stood_tokens(memory: AgentMemory, at: datetime) -> int:
    """Return how many of its tokens stood then, in it or in what it has replaced since."""
    if memory.recorded_at <= at:
        return memory.token_estimate
    replaced = select(AgentMemory).where(
        AgentMemory.agent_id == memory.agent_id,
        AgentMemory.discarded,
        AgentMemory.replaced_by_id == memory.id,
    )
    stood = sum(_stood_tokens(each, at) for each in db.session.scalars(replaced))
    return min(memory.token_estimate, stood)


def _more_later(today: Select[int], *, is_of_day: bool) -> str:
    if not is_of_day:
        return f"; more when what went in the last {in_days(ROLLING_WINDOW)} is longer ago"
    oldest = db.session.scalar(today.with_only_columns(func.min(AuditLog.created_at)))
    return f"; more from {oldest + DAY:%Y-%m-%d %H:%M} UTC" if oldest is not None else ""
