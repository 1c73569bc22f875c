"""The Time Machine: an ended session is undone from the audit log, exactly and content-blind.

The session's records are replayed backwards (``replay``). A memory that is no longer as a record
left it is a conflict, and then nothing is changed. ``and_after`` also replays everything that
happened since: sessions, toggles, restores. Memories saved since stay. An earlier undo and the
records that it took back cancel out, and are skipped.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import select

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import db
from refine.models import Agent, AuditLog, RefinementSession, User
from refine.models.ledger import Change, change_memories
from refine.models.runs.session import MUTATIONS, Channel
from refine.models.runs.session.duplicates import duplicates_losing_their_last_copy
from refine.models.runs.session.survival import LedgerReading
from refine.refinement.replay import Obstacle, Replay, records_since, without_undos


class UndoConflict(Refused):
    """Memories are no longer as the session left them; nothing was changed.

    ``obstacles`` are the records in the way, ``unexplained`` the memories changed without a record;
    ``is_wider_possible``: undoing everything since the session as well might succeed.
    """

    def __init__(
        self, obstacles: Sequence[Obstacle], unexplained: Collection[int], *, and_after: bool
    ) -> None:
        self.obstacles = obstacles
        self.unexplained = unexplained
        by_memory: dict[int, list[str]] = {}
        for obstacle in obstacles:
            by_memory.setdefault(obstacle.memory_id, []).append(str(obstacle))
        said = [f"#{id_} by {', '.join(them)}" for id_, them in sorted(by_memory.items())]
        said += [f"#{id_} outside the application" for id_ in sorted(unexplained)]
        self.is_wider_possible = not unexplained and not and_after
        offered = "; you can undo this session and everything after it"
        wider = offered if self.is_wider_possible else ""
        super().__init__(
            "nothing was undone, because these memories were changed after the session: "
            f"{'; '.join(said)}{wider}"
        )


@dataclass(frozen=True)
class Effect:
    """The effect of an undo in figures: memories by what becomes of them, and the ledger."""

    brought_back: int
    discarded: int
    rewritten: int
    unprotected: int
    protected: int
    retagged: int
    memories_before: int
    memories_after: int
    mass_before: int
    mass_after: int

    def __str__(self) -> str:
        named = {
            "brought back": self.brought_back,
            "discarded": self.discarded,
            "rewritten to what they were": self.rewritten,
            "no longer constitutional": self.unprotected,
            "made constitutional": self.protected,
            "with the tags they had": self.retagged,
        }
        done = ", ".join(f"{count} {what}" for what, count in named.items() if count)
        return (
            f"{done or 'no memory changes'}; {self.memories_before} → {self.memories_after} "
            f"memories, {self.mass_before:,} → {self.mass_after:,} tokens"
        )


@dataclass(frozen=True)
class Undo:
    """What an undo would do, or did: the sessions that it undoes, and its effect.

    ``is_done``: the session was undone before, and nothing is left to do. ``sequences`` are the
    records that it takes back.
    """

    session: RefinementSession
    sessions: Sequence[RefinementSession]
    effect: Effect
    is_done: bool = False
    changes: Sequence[Change] = field(default=(), repr=False)
    sequences: Sequence[int] = ()


def preview(session: RefinementSession, *, and_after: bool = False) -> Undo:
    """Return what ``undo`` would do now, or raise what it would raise. Changes nothing."""
    return _planned(session, and_after, clock.now())


def undo(
    session: RefinementSession,
    *,
    through: Channel,
    user: User | None = None,
    and_after: bool = False,
    at: datetime | None = None,
) -> Undo:
    """Undo the ended session, or everything since it began, in the caller's transaction.

    Recorded as ``memory_refinement_rollback``, with a journal memory for the agent. Raises Refused
    while the agent has a live session, and UndoConflict. A second undo changes nothing.
    """
    at = at or clock.now()
    plan = _planned(session, and_after, at)
    if plan.is_done:
        return plan
    for undone in plan.sessions:
        undone.undone_at, undone.undone_through = at, through
        undone.undone_by_id = user.id if user is not None else None
    note = session.agent.ledger.add_session_note(session.id, _undo_note(plan, through), at)
    change_memories(
        "memory_refinement_rollback",
        [*plan.changes, note],
        agent=session.agent,
        user=user,
        session_id=session.id,
        subject=("RefinementSession", session.id),
        data=_recorded(plan, through, and_after),
        at=at,
    )
    return plan


def _recorded(plan: Undo, through: Channel, and_after: bool) -> dict[str, object]:
    return {
        "operation": "undo",
        "by": through,
        "and_after": and_after,
        "undone_sessions": [str(undone.id) for undone in plan.sessions],
        "undone_records": list(plan.sequences),
        "mass_before": plan.effect.mass_before,
        "memories_before": plan.effect.memories_before,
        "memories_after": plan.effect.memories_after,
    }


def undo_own_last(session: RefinementSession, *, at: datetime | None = None) -> Undo:
    """Undo the session as its agent, which may undo only its last one with changes."""
    session.lock()
    last = RefinementSession.last_changing_of(session.agent)
    if last is None or last.id != session.id:
        raise Refused(
            "an agent may undo only its last session with changes; an admin can undo earlier ones"
        )
    return undo(session, through="agent", at=at)


def _planned(session: RefinementSession, and_after: bool, at: datetime) -> Undo:
    agent = session.agent
    session.lock()
    if session.undone_at is not None:
        return Undo(session, [], _effect(agent, []), is_done=True)
    if session.is_live:
        raise Refused(f"the session is {session.status}; it can be undone once it has ended")
    if (live := RefinementSession.live_of(agent)) is not None:
        raise Refused(
            f"session {live.id} of this agent is {live.status}; wait until it has ended, then undo"
        )
    since = without_undos(records_since(session))
    ours = [record for record in since if and_after or record.session_id == session.id]
    replay = Replay(agent, ours, at)
    if replay.blocked:
        raise UndoConflict(*replay.in_the_way(since), and_after=and_after)
    changes = replay.changes()
    if not (session.has_changes or (and_after and any(map(_is_seen, changes)))):
        raise Refused("the session left no changes, so there is nothing to undo")
    later = [] if and_after else [each for each in since if each.session_id != session.id]
    if relying := _relying_on(agent, changes, later):
        raise UndoConflict(relying, (), and_after=and_after)
    return Undo(
        session,
        _sessions_of(session, replay.records),
        _effect(agent, changes),
        changes=changes,
        sequences=sorted(record.sequence for record in replay.records),
    )


def _is_seen(change: Change) -> bool:
    """Tell whether the change is more than another date of a discard."""
    before, after = change.before, change.after
    if before is None or not (before["discarded_at"] and after["discarded_at"]):
        return True
    return not change.altered().keys() <= {"discarded_at"}


def _relying_on(
    agent: Agent, changes: Sequence[Change], later: Sequence[AuditLog]
) -> list[Obstacle]:
    """The later edits that relied on texts which this undo would remove.

    A duplicate needs a copy, whatever the settings; of what an edit removed, details and words must
    remain.
    """
    rules = settings.current()
    duplicates = [record for record in later if record.action == "memory_refinement_dedup"]
    unsaid = duplicates_losing_their_last_copy(agent, changes, duplicates) if duplicates else set()
    edits = [record for record in later if record.action in MUTATIONS]
    if edits and rules.details == "keep":
        unsaid |= LedgerReading().texts_lost_by(agent, changes, edits, rules.likeness)
    by_sequence = {record.sequence: record for record in later}
    return [Obstacle.of(memory_id, by_sequence[sequence]) for sequence, memory_id in sorted(unsaid)]


def _sessions_of(
    session: RefinementSession, records: Collection[AuditLog]
) -> list[RefinementSession]:
    """The session, and those whose records are taken back."""
    ids = {session.id, *(record.session_id for record in records if record.session_id)}
    if len(ids) == 1:  # it is locked, and not undone
        return [session]
    return list(
        db.session.scalars(
            select(RefinementSession)
            .where(RefinementSession.id.in_(ids), RefinementSession.undone_at.is_(None))
            .order_by(RefinementSession.created_at)
            .with_for_update(key_share=True)
        )
    )


def _effect(agent: Agent, changes: Sequence[Change]) -> Effect:
    fields = [(field, change) for change in changes for field in change.altered()]
    altered = Counter(field for field, _ in fields)
    now_unset = Counter(field for field, change in fields if not change.after[field])
    memories, mass = agent.ledger.core_totals()
    return Effect(
        brought_back=now_unset["discarded_at"],
        discarded=altered["discarded_at"] - now_unset["discarded_at"],
        rewritten=altered["content"],
        unprotected=now_unset["constitutional"],
        protected=altered["constitutional"] - now_unset["constitutional"],
        retagged=altered["tags"],
        memories_before=memories,
        memories_after=memories + sum(change.count_difference for change in changes),
        mass_before=mass,
        mass_after=mass + sum(change.mass_difference for change in changes),
    )


def _undo_note(plan: Undo, through: Channel) -> str:
    who = "I" if through == "agent" else "An admin"
    rest = " and what came after it" if len(plan.sessions) > 1 else ""
    of = f"my refinement session of {plan.session.created_at:%Y-%m-%d}"
    return f"{who} undid {of}{rest}: {plan.effect}."
