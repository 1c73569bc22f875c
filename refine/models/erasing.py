"""Erasing a memory for good: asked for twice, a day apart, by its agent or on the server."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, cast

from sqlalchemy import BigInteger, ColumnElement, Select, delete, select, update

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.agent.eligibility import is_readable
from refine.models.audit import AuditLog
from refine.models.clients import ApiToken, IdempotencyKey
from refine.models.columns import in_ids, in_names
from refine.models.correcting import DAY, refuse_too_much, written_by_agent
from refine.models.ledger.image import CONTENT_KEY, Change
from refine.models.ledger.memory import AgentMemory, change_memories
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.task import MemoryTask
from refine.rules.quantities import abbreviated

By = Literal["agent", "command line", "data subject"]
_NAMES: dict[By, str] = {
    "agent": "I",
    "command line": "An operator",
    "data subject": "For a person who asked, I",
}

# A request that is not repeated in this time has lapsed.
LAPSES_AFTER = timedelta(days=30)
# What goes of an erased memory, and of what the model said in a session.
_GONE = {"content": None, "extra": None, "source_id": None, CONTENT_KEY: None}
UNSAID = (RefinementSession.sealed_summary, RefinementSession.sealed_consent_reply)
# The edits that put a new memory in place of others.
_DESCENT = ("memory_refinement_consolidate", "memory_refinement_update", "memory_corrected")


class Erasure(NamedTuple):
    """``ids`` were erased, or can be ``from_at``: the memory, what it was made of or replaced, and
    copies. ``descendants``: what was made of these, and kept copies; they stay.
    """

    ids: list[int]
    descendants: list[int]
    from_at: datetime | None = None


def erase(
    agent: Agent,
    memory_id: int,
    by: By,
    *,
    with_descendants: bool = False,
    at: datetime | None = None,
) -> Erasure:
    """Ask for the erasure or, a day later, carry it out; NotFound, or Refused as in between."""
    at = at or clock.now()
    db.session.flush()
    agent.lock()
    ids, descendants = _family(agent, memory_id)
    if with_descendants:
        ids, descendants = ids | descendants, set()
    rows = AgentMemory.lock_rows(agent, ids)
    if written_by_agent(rows, memory_id).is_erased:
        raise Refused(f"Memory #{memory_id} was erased for good already")
    about = {"by": by, "ids": sorted(ids), "with_descendants": with_descendants}
    asked_at, from_at = _asked_at(agent, memory_id, about, at), None
    if by != "data subject" or asked_at is not None:
        _refuse_unerasable(agent, rows, by)
    if asked_at is None:
        from_at = at + DAY
        agent.record(_REQUESTED, subject=rows[memory_id], data=about, at=at)
    elif at < asked_at + DAY:
        raise Refused(
            f"Memory #{memory_id} can be erased from {asked_at + DAY:%Y-%m-%d %H:%M} UTC on; ask "
            "again then. Nothing was changed"
        )
    else:
        _refuse_while_read(agent, asked_at)
        _carry_out(agent, rows, by, at)
    done = Erasure(sorted(ids), sorted(descendants), from_at)
    agent.ledger.add_journal_note(_note(done, by), at)
    return done


def erase_again(agent: Agent, ids: Collection[int]) -> tuple[int, int]:
    """Erase what was erased once, and came back with a backup. Return how many were erased, and how
    many are constitutional there, and stay.
    """
    found = AgentMemory.lock_rows(agent, ids).values()
    left = [memory for memory in found if not memory.is_erased]
    unlocked = {each.id: each for each in left if each.edit_lock != "constitutional"}
    if unlocked:
        _carry_out(agent, unlocked, "command line", clock.now())
    return len(unlocked), len(left) - len(unlocked)


_REQUESTED = "memory_erasure_requested"


def _refuse_unerasable(agent: Agent, family: Mapping[int, AgentMemory], by: By) -> None:
    """An agent erases nothing that is locked; on the server, a tag is not in the way."""
    if (live := RefinementSession.live_of(agent)) is not None:
        raise Refused(f"session {live.id} of this agent is {live.status}; wait until it has ended")
    ways = {"constitutional": "lift the flag first"}
    if by == "agent":
        ways["immutable"] = "only an operator can, with `refine memory erase`"
    for lock, way in ways.items():
        if locked := [f"#{each.id}" for each in family.values() if each.edit_lock == lock]:
            raise Refused(f"Cannot erase {lock} {abbreviated(locked, ', ')}: {way}")


def _refuse_while_read(agent: Agent, asked_at: datetime) -> None:
    """What reads the memory, or a conversation of before the request, could write it anew."""
    may_write = MemoryTask.is_held | (
        (MemoryTask.kind == "extraction") & (MemoryTask.created_at <= asked_at)
    )
    tasks = select(MemoryTask).where(MemoryTask.agent_id == agent.id, MemoryTask.is_live, may_write)
    if (task := db.session.scalar(tasks.limit(1))) is not None:
        raise Refused(
            f"{task.kind} {task.id} of this agent is {task.status} and could write it anew; wait "
            "until it has ended"
        )


def _asked_at(
    agent: Agent, memory_id: int, about: Mapping[str, Any], at: datetime
) -> datetime | None:
    """Return when it was asked for last, by the same, of these ids at least, not carried out."""
    asked = select(AuditLog.created_at, AuditLog.data).where(
        AuditLog.agent_id == agent.id,
        AuditLog.action == _REQUESTED,
        AuditLog.auditable_id == str(memory_id),
        AuditLog.created_at > at - LAPSES_AFTER,
    )
    newest_first = db.session.execute(asked.order_by(AuditLog.sequence.desc()))
    for asked_at, data in newest_first:
        is_of_all = set(about["ids"]) <= set(data["ids"])  # copies may have gone with others
        if is_of_all and {**data, **about, "ids": data["ids"]} == data:
            return cast(datetime, asked_at)
    return None


def _carry_out(agent: Agent, rows: Mapping[int, AgentMemory], by: By, at: datetime) -> None:
    removed = sum(memory.core_tokens for memory in rows.values())
    if by != "command line":
        removed = refuse_too_much(agent, rows.values(), at)
    rows = {**rows, **_unsaid(agent, rows.values())}
    changes = [erasure_of(memory, at) for memory in rows.values()]
    change_memories(
        "memory_erased",
        changes,
        agent=agent,
        locked=rows,
        subject=next(iter(rows.values())),
        data={"operation": "erase", "by": by, "removed_tokens": removed},
        at=at,
    )
    # answers that are kept for repeated requests hold texts, and hashes of requests
    tokens = select(ApiToken.id).where(ApiToken.agent_id == agent.id)
    db.session.execute(delete(IdempotencyKey).where(IdempotencyKey.token_id.in_(tokens)))


def erasure_of(memory: AgentMemory, at: datetime) -> Change:
    """Return the change that erases a locked memory."""
    before = memory.image()
    discarded_at = before["discarded_at"] or clock.iso(at)
    return Change(memory.id, before, {**before, **_GONE, "discarded_at": discarded_at})


def _unsaid(agent: Agent, erased: Collection[AgentMemory]) -> dict[int, AgentMemory]:
    """Delete what the model said in sessions that could show these; return its closing notes."""
    since = min(memory.recorded_at for memory in erased)
    could = RefinementSession.agent_id == agent.id, RefinementSession.ended_at >= since
    db.session.execute(update(RefinementSession).where(*could).values(dict.fromkeys(UNSAID)))
    notes = select(AgentMemory.id).where(
        AgentMemory.session_id.in_(select(RefinementSession.id).where(*could)),
        AgentMemory.is_note(),
        ~AgentMemory.is_erased,
    )
    return AgentMemory.lock_rows(agent, db.session.scalars(notes))


def _note(erasure: Erasure, by: By) -> str:
    who = _NAMES[by]
    named = ", ".join(f"#{id_}" for id_ in erasure.ids)
    if erasure.from_at is not None:
        return (
            f"{who} asked to erase for good: {named}. From {erasure.from_at:%Y-%m-%d %H:%M} UTC on "
            "this can be confirmed; until then nothing happens."
        )
    return (
        f"{who} erased for good: {named}. Nobody can read or restore them, nor what I said in "
        "sessions since the first of them was saved."
    )


# -- at a person's request: the clock confirms what a search asked for ---------------------------


def asked_for_persons(since: datetime, until: datetime) -> Select[*tuple[Any, ...]]:
    """Select the agent and the id of memories to erase that searches asked for in this time."""
    memory_id = AuditLog.auditable_id.cast(BigInteger)
    return (
        select(AuditLog.agent_id, AgentMemory.id, AgentMemory.constitutional)
        .join(AgentMemory, AgentMemory.id == memory_id)
        .where(AuditLog.action == _REQUESTED, AuditLog.by == "data subject")
        .where(AuditLog.created_at.between(since, until), ~AgentMemory.is_erased)
        .distinct()
    )


def due_for_persons(at: datetime) -> Select[int]:
    c = asked_for_persons(at - LAPSES_AFTER, at - DAY).subquery().c
    return select(Agent.id).where(Agent.id.in_(select(c.agent_id)), is_readable())


def erase_for_persons(agent: Agent, at: datetime) -> int:
    """Erase what can be erased now, and return how many; the rest is tried again."""
    asked, erased = asked_for_persons(at - LAPSES_AFTER, at - DAY), 0
    for _, memory_id, _ in db.session.execute(asked.where(AgentMemory.agent_id == agent.id)).all():
        with suppress(Refused):
            done = erase(agent, memory_id, "data subject", at=at)
            erased += len(done.ids) if done.from_at is None else 0
    return erased


# -- what has the same words ----------------------------------------------------------------------


def _family(agent: Agent, memory_id: int) -> tuple[set[int], set[int]]:
    """Return what goes along with a memory, with its id, and what was made of that and stays."""
    made_of: dict[int, set[int]] = {}
    made_into: dict[int, set[int]] = {}
    edits = select(AuditLog.data).where(
        AuditLog.agent_id == agent.id, AuditLog.action.in_(_DESCENT)
    )
    for data in db.session.scalars(edits):
        sources = {each["id"] for each in data["memories"] if "before" in each}
        for result in {each["id"] for each in data["memories"]} - sources:
            made_of.setdefault(result, set()).update(sources)
            for source in sources:
                made_into.setdefault(source, set()).add(result)
    earlier = _reached({memory_id}, made_of)
    gone = _unerased(agent, AgentMemory.id, _are(earlier) & AgentMemory.discarded) | {memory_id}
    hashes = _unerased(agent, AgentMemory.content_hash, _are(gone))
    is_copy = in_names(AgentMemory.content_hash, hashes)
    gone |= _unerased(agent, AgentMemory.id, is_copy & AgentMemory.discarded)
    copies = _unerased(agent, AgentMemory.id, is_copy)
    descendants = _reached(gone, made_into) - earlier | copies
    return gone, _unerased(agent, AgentMemory.id, _are(descendants - gone))


def _are(ids: Collection[int]) -> ColumnElement[bool]:
    return in_ids(AgentMemory.id, ids)


def _reached(ids: Collection[int], steps: Mapping[int, set[int]]) -> set[int]:
    reached, new = set(ids), set(ids)
    while new:
        new = set().union(*(steps.get(id_, set()) for id_ in new)) - reached
        reached |= new
    return reached


def _unerased(agent: Agent, column: Any, condition: ColumnElement[bool]) -> set[Any]:
    is_own = AgentMemory.agent_id == agent.id, ~AgentMemory.is_note()
    mine = *is_own, ~AgentMemory.is_erased, condition
    return set(db.session.scalars(select(column).where(*mine)))
