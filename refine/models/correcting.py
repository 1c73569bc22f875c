"""What agents correct themselves, outside sessions: recorded, restorable, told in the journal."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import func

from refine import clock, settings
from refine.errors import NotFound, Refused
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.ledger import AgentMemory, Change, change_memories, content_hash
from refine.models.ledger.image import retired
from refine.models.ledger.ledger import removed_outside_sessions
from refine.models.ledger.memory import CORRECTION, NOTE
from refine.models.runs.session.session import ROLLING_WINDOW, RefinementSession
from refine.rules.content import memory_content
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
    removed = max(0, memory.core_tokens - new.token_estimate)
    refuse_too_much(agent, removed, at)
    db.session.add(new)
    db.session.flush()
    created = Change(new.id, None, new.image())
    _set_aside("memory_corrected", memory, reason, removed, at, created)
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
    refuse_too_much(agent, memory.core_tokens, at)
    _set_aside("memory_forgotten", memory, reason, memory.core_tokens, at)
    agent.ledger.add_journal_note(f"I forgot memory #{memory_id} ({reason}). {_RESTORABLE}", at)
    return memory


_RESTORABLE = "What it said can be restored."


def _own(agent: Agent, memory_id: int, verb: str) -> AgentMemory:
    db.session.flush()
    agent.lock()
    rows = AgentMemory.lock_rows(agent, [memory_id])
    memory = written_by_agent(
        {id_: row for id_, row in rows.items() if not row.discarded}, memory_id
    )
    if memory.edit_lock is not None:
        raise Refused(f"Cannot {verb} {memory.edit_lock} memory #{memory_id}")
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
        subject=("AgentMemory", memory.id),
        data={"reason": reason, "removed_tokens": removed},
        at=at,
    )


# -- the circuit breaker by day -------------------------------------------------------------------


def refuse_too_much(agent: Agent, tokens: int, at: datetime) -> None:
    """Refuse what would pass the agent's threshold in 24 hours, or the rolling floor. What a live
    session may still remove is its own, and what the agent saved in these hours pays for nothing.
    """
    mass, today = agent.core_token_usage, removed_outside_sessions(agent.id, at - DAY)
    removed = db.session.scalar(today) or 0
    young = agent.ledger.core().where(AgentMemory.recorded_at > at - DAY).order_by(None)
    added = db.session.scalar(young.with_only_columns(func.sum(AgentMemory.token_estimate))) or 0
    by_day = removable_under_threshold(mass - added + removed, agent.threshold) - removed
    recently, reserved = RefinementSession.removed_recently(agent, at), 0
    if (live := RefinementSession.live_of(agent)) is not None:
        live.require_genuine()
        recently, reserved = recently + live.removed_tokens, live.tokens_left
    by_floor = removable_under_floor(mass, settings.current().rolling_floor, recently)
    left = max(0, min(by_day, by_floor) - reserved)
    if tokens <= left:
        return
    later = f"; more when what went in the last {in_days(ROLLING_WINDOW)} is longer ago"
    if reserved:
        later = "; more when the session that is running has ended"
    elif by_day <= by_floor:
        gone = db.session.scalar(today.with_only_columns(func.min(AuditLog.created_at)))
        came = db.session.scalar(young.with_only_columns(func.min(AgentMemory.recorded_at)))
        oldest = min(filter(None, (gone, came)), default=None)
        later = f"; more from {oldest + DAY:%Y-%m-%d %H:%M} UTC" if oldest is not None else ""
    raise Refused(
        f"Nothing was changed: this would remove {tokens} tokens, and at most {left} may go "
        f"now{later}"
    )
