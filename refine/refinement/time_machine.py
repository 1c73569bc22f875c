"""The Time Machine: undoes a session from the audit log, exactly and content-blind. Records are
replayed backwards; a memory not in the state that its record left is a conflict.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

from sqlalchemy import select

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import db
from refine.models import Agent, AgentMemory, AuditLog, RefinementSession, User
from refine.models.ledger.history import records_since_first
from refine.models.ledger.image import Change, Image, changes_in, images_in, mass_of, state_of
from refine.models.ledger.memory import change_memories
from refine.models.runs.session.duplicates import duplicates_losing_their_last_copy
from refine.models.runs.session.session import MUTATIONS, Channel
from refine.models.runs.session.survival import LedgerReading

# Saved memories stay in every undo.
_SAVES = ("memory_saved", "memory_imported")
# So do a promotion, and what its agent itself corrected or forgot outside sessions, though earlier
# changes of these memories are undone: see ``_Replay``.
_PROMOTION = "memory_promoted"
_SET_ASIDE = ("memory_corrected", "memory_forgotten")
_ASIDE = frozenset({"discarded_at", "retired_reason", "replaced_by_id"})


@dataclass(frozen=True)
class Obstacle:
    """A later record that changed a memory of the session."""

    memory_id: int
    record_id: int
    sequence: int
    action: str
    at: datetime
    session_id: object

    @classmethod
    def of(cls, memory_id: int, record: AuditLog) -> "Obstacle":
        return cls(
            memory_id,
            record.id,
            record.sequence,
            record.action,
            record.created_at,
            record.session_id,
        )

    def __str__(self) -> str:
        return f"record {self.sequence} ({self.action}, {self.at:%Y-%m-%d %H:%M} UTC)"


class UndoConflict(Refused):
    """Memories changed since, by ``obstacles`` or without a record; nothing was undone."""

    def __init__(
        self, obstacles: Sequence[Obstacle], unexplained: Collection[int], *, and_after: bool
    ) -> None:
        self.obstacles = obstacles
        self.unexplained = unexplained
        by_memory: dict[int, list[str]] = {}
        for obstacle in obstacles:
            by_memory.setdefault(obstacle.memory_id, []).append(str(obstacle))
        said = [f"#{id_} by {', '.join(them)}" for id_, them in sorted(by_memory.items())]
        said += [f"#{id_} in the database, not by Refine" for id_ in sorted(unexplained)]
        self.is_wider_possible = not unexplained and not and_after
        offered = "; you can undo this session and everything after it"
        wider = offered if self.is_wider_possible else ""
        super().__init__(
            "nothing was undone, because these memories were changed after the session: "
            f"{'; '.join(said)}{wider}"
        )


@dataclass(frozen=True)
class Effect:
    """The effect of an undo: memories by outcome, and the ledger."""

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
    """An undo: its sessions, record ``sequences`` and effect; ``is_done``: nothing is left."""

    session: RefinementSession
    sessions: Sequence[RefinementSession]
    effect: Effect
    is_done: bool = False
    changes: Sequence[Change] = field(default=(), repr=False)
    sequences: Sequence[int] = ()
    gone: Mapping[uuid.UUID, Counter[int]] = field(default_factory=dict)


def preview(session: RefinementSession, *, and_after: bool = False) -> Undo:
    """Return what ``undo`` would do or raise, without changes."""
    return _planned(session, and_after, clock.now())


def undo(
    session: RefinementSession,
    *,
    through: Channel,
    user: User | None = None,
    and_after: bool = False,
    at: datetime | None = None,
) -> Undo:
    """Undo the session, or everything since it began; Refused, or UndoConflict."""
    at = at or clock.now()
    plan = _planned(session, and_after, at)
    if plan.is_done:
        return plan
    for undone in plan.sessions:
        undone.undone_at, undone.undone_through = at, through
        undone.undone_by_id = user.id if user is not None else None
        if undone.id in plan.gone:
            undone.count("tokens_gone", plan.gone[undone.id].total())
    note = session.agent.ledger.add_session_note(session.id, _undo_note(plan, through), at)
    change_memories(
        "memory_refinement_rollback",
        [*plan.changes, note],
        agent=session.agent,
        user=user,
        session_id=session.id,
        subject=session,
        data={
            "operation": "undo",
            "by": through,
            "and_after": and_after,
            "undone_sessions": [str(undone.id) for undone in plan.sessions],
            "undone_records": list(plan.sequences),
            **asdict(plan.effect),
        },
        at=at,
    )
    return plan


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
    all_since = records_since_first(agent.id, AuditLog.session_id == session.id)
    since = _without_undos(all_since)
    ours = [record for record in since if and_after or record.session_id == session.id]
    replay = _Replay(agent, ours, at, set_aside=_set_aside_in(since), and_after=and_after)
    if replay.blocked:
        raise UndoConflict(*replay.obstacles_among(since), and_after=and_after)
    changes = replay.changes()
    if not (session.has_changes or (and_after and any(map(_is_seen, changes)))):
        raise Refused("the session left no changes, so there is nothing to undo")
    gone = _gone_for_good(ours, replay.aside)
    if gone and all(each.after["discarded_at"] for each in changes):
        ids = {id_ for tokens in gone.values() for id_ in +tokens}
        named = ", ".join(f"#{id_}" for id_ in sorted(ids))
        raise Refused(f"nothing was undone: what was removed was erased or forgotten ({named})")
    later = [] if and_after else [each for each in since if each.session_id != session.id]
    if relying := _relying_on(agent, changes, later):
        raise UndoConflict(relying, (), and_after=and_after)
    return Undo(
        session,
        _sessions_of(session, replay.records),
        _effect(agent, changes),
        changes=changes,
        sequences=sorted(record.sequence for record in replay.records),
        gone=gone,
    )


def _set_aside_in(records: Sequence[AuditLog]) -> set[int]:
    return {
        each["id"]
        for record in records
        if record.action in _SET_ASIDE
        for each in images_in(record.data)
        if each["before"] is not None
    }


def _gone_for_good(
    records: Sequence[AuditLog], aside: Collection[int]
) -> dict[uuid.UUID, Counter[int]]:
    """Return what sessions removed and no undo brings back: tokens by session and memory id."""
    removed: defaultdict[uuid.UUID, Counter[int]] = defaultdict(Counter)
    for record in records:
        if record.session_id is None or record.action == "memory_refinement_dedup":
            continue
        readable = {change.memory_id for change in changes_in(record.data, record.sealed)}
        for image in images_in(record.data):
            if image["id"] not in readable or image["id"] in aside:
                tokens = mass_of(image["before"]) - mass_of(image["after"])
                removed[record.session_id][image["id"]] += tokens
    return {id_: tokens for id_, tokens in removed.items() if tokens.total() > 0}


def _is_seen(change: Change) -> bool:
    before = change.before or {}
    is_redated = before["discarded_at"] and change.after["discarded_at"]
    return not is_redated or not change.altered().keys() <= {"discarded_at"}


def _relying_on(
    agent: Agent, changes: Sequence[Change], later: Sequence[AuditLog]
) -> list[Obstacle]:
    """Later edits that relied on texts which this undo would remove."""
    rules = settings.current()
    duplicates = [record for record in later if record.action == "memory_refinement_dedup"]
    lost = duplicates_losing_their_last_copy(agent, changes, duplicates) if duplicates else set()
    edits = [record for record in later if record.action in MUTATIONS]
    if edits and rules.details == "keep":
        lost |= LedgerReading().texts_lost_by(agent, changes, edits)
    by_sequence = {record.sequence: record for record in later}
    return [Obstacle.of(memory_id, by_sequence[sequence]) for sequence, memory_id in sorted(lost)]


def _sessions_of(
    session: RefinementSession, records: Collection[AuditLog]
) -> list[RefinementSession]:
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


# -- the replay -----------------------------------------------------------------------------------


def _without_undos(records: Sequence[AuditLog]) -> list[AuditLog]:
    taken_back: set[int] = set()
    found = []
    for record in records:
        if record.data.get("operation") == "undo":
            taken_back.update(record.data["undone_records"])
        elif record.sequence not in taken_back:
            found.append(record)
    return found


def _changes_of(record: AuditLog) -> list[Change]:
    """Return what an undo takes back: of what a session, or its agent later, wrote, no notes."""
    if record.action in _SAVES:
        return []
    return [
        change
        for change in changes_in(record.data, record.sealed)
        if change.before is not None
        or (change.after["memory_type"] != "journal" and record.action not in _SET_ASIDE)
    ]


@dataclass
class _MemoryState:
    present: Image
    target: Image
    is_aside: bool
    oldest_sequence: int = 0
    is_blocked: bool = False
    # the fields that were set by later changes that stay
    later: set[str] = field(default_factory=set)

    def matches(self, left: Image) -> bool:
        """Whether a record left it so, apart from later changes that stay."""
        later = {each: self.target[each] for each in self.later}
        return state_of({**left, **later}) == state_of(self.target)


class _Replay:
    """Takes records back, newest first, unless their memory is blocked; locks memories only.

    Of the ``set_aside`` memories, what is discarded now stays so, and with it exact copies and what
    was merged into it. That they went explains, in an undo of all ``and_after``, their state.
    """

    def __init__(
        self,
        agent: Agent,
        records: Sequence[AuditLog],
        at: datetime,
        *,
        set_aside: Collection[int],
        and_after: bool,
    ) -> None:
        steps = [(record, _changes_of(record)) for record in records]
        touched = {change.memory_id for _, changes in steps for change in changes}
        memories = AgentMemory.lock_rows(agent, touched.union(set_aside))
        hashes = {memories[id_].content_hash for id_ in set_aside if memories[id_].discarded}
        self.records: set[AuditLog] = set()
        self._states: dict[int, _MemoryState] = {}
        for id_ in sorted(touched):
            memory = memories[id_]
            is_aside = memory.discarded and memory.content_hash in hashes
            state = _MemoryState(memory.image(), memory.image(), is_aside)
            state.later = set(_ASIDE) if is_aside and and_after else set()
            self._states[id_] = state
        for record, changes in steps:
            self._take_back(record, changes, at)

    def _take_back(self, record: AuditLog, changes: Sequence[Change], at: datetime) -> None:
        states = [self._states[change.memory_id] for change in changes]
        if record.action == _PROMOTION:
            for state in states:
                state.later.add("memory_type")
            return
        made = [self._states[change.memory_id] for change in changes if change.before is None]
        is_aside = any(state.is_aside for state in made)
        for state, change in zip(states, changes, strict=True):
            state.oldest_sequence = record.sequence
            state.is_blocked = state.is_blocked or not state.matches(change.after)
            state.is_aside = state.is_aside or is_aside
            if state.is_aside:
                state.later |= _ASIDE
            target = change.reversed_onto(state.target, at, keep=state.later)
            if state.is_blocked or target != state.target:
                self.records.add(record)
            if not state.is_blocked:
                state.target = target

    @property
    def aside(self) -> set[int]:
        return {id_ for id_, state in self._states.items() if state.is_aside}

    @property
    def blocked(self) -> set[int]:
        """The memories that differ from what a record left."""
        return {id_ for id_, state in self._states.items() if state.is_blocked}

    def changes(self) -> list[Change]:
        return [
            Change(id_, state.present, state.target)
            for id_, state in sorted(self._states.items())
            if state.target != state.present
        ]

    def obstacles_among(self, since: Sequence[AuditLog]) -> tuple[list[Obstacle], set[int]]:
        """Return the later records that prevent the undo, and the memories changed without one."""
        obstacles = [
            Obstacle.of(id_, record)
            for record in reversed(since)
            if record not in self.records
            for id_ in (memory["id"] for memory in record.data["memories"])
            if id_ in self.blocked and record.sequence > self._states[id_].oldest_sequence
        ]
        explained = {obstacle.memory_id for obstacle in obstacles}
        return obstacles, self.blocked - explained
