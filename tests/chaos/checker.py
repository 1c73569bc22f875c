"""Proves from a history that nothing was lost and nothing done twice, or says what was.

Each rule is a function that yields breaches. Nothing here asks Refine: what its own tables, its
audit log and the model's log say is compared with what was promised, asked and struck.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from refine.models.runs.session.ending import END_ACTION
from refine.models.runs.session.state import ANSWERED, ENDED
from tests.chaos.history import UNDO, Asked, History, Record, Session
from tests.chaos.plan import CLOCKS, POSTGRES, VALKEY, WORKERS
from tests.factories import EDITS

# From the loss of a worker to the end of its sessions.
LOST_WITHIN_SECONDS = 120.0
# How late a look may be.
_LOOK_SECONDS = 2.0

_ENDS = frozenset(END_ACTION.values())
_DEDUP, *_LOOP_EDITS = EDITS
# The action of a call, the record of what it did, and the type of its result.
_OF_CALL = {
    "consolidate": ("memory_refinement_consolidate", "consolidated"),
    "update": ("memory_refinement_update", "updated"),
    "delete": ("memory_refinement_delete", "deleted"),
    "protect": ("memory_refinement_protect", "protected"),
    "complete": ("memory_refinement_complete", "refinement_complete"),
}
_MUTATIONS = frozenset(_OF_CALL[each][0] for each in ("consolidate", "update", "delete"))
_DONE = {result: action for action, (_, result) in _OF_CALL.items()}
# The errors of a run whose process is gone, or was asked to go, and not of its model.
_OF_PROCESS = frozenset({"worker_lost", "worker_stopped", "interrupted", "internal"})
_STROKES = frozenset({"kill", "kill child of", "terminate", "freeze", "ended by itself"})


class Breach(NamedTuple):
    """A promise that was not kept: which rule, about whom, and what was found."""

    rule: str
    subject: str
    found: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.found}"


def breaches(history: History) -> list[Breach]:
    """Return all breaches of all rules."""
    return [
        Breach(" ".join(rule.__name__.strip("_").split("_")), subject, found)
        for rule in RULES
        for subject, found in rule(history)
    ]


Found = Iterator[tuple[str, str]]


# -- sessions -------------------------------------------------------------------------------------


def _every_session_ends_once(history: History) -> Found:
    for session in history.sessions:
        ends = [each.action for each in history.records_of.get(session.id, ()) if _is_end(each)]
        if session.status not in ENDED:
            yield session.id, f"it is {session.status}"
        elif ends != [END_ACTION[session.status]]:
            yield session.id, f"it is {session.status}; its ends on record: {ends}"
    known = {session.id for session in history.sessions}
    for id_ in (history.records_of.keys() | set(map(str, history.signs))) - known:
        yield id_, "it was there once, and has no row"


def _no_session_comes_back_to_life(history: History) -> Found:
    for id_ in history.revived:
        yield str(id_), "it was seen live after it had ended"


def _an_agent_has_one_live_session(history: History) -> Found:
    for agent_id in history.crowded:
        yield f"agent {agent_id}", "two live sessions were seen at once"
    live: dict[int, str] = {}
    for record in sorted(history.records, key=lambda each: (each.agent_id, each.sequence)):
        if record.session_id is None:
            continue
        if record.action == "refinement_queued":
            if (other := live.get(record.agent_id)) is not None:
                yield f"agent {record.agent_id}", f"{record.session_id} began beside {other}"
            live[record.agent_id] = record.session_id
        elif _is_end(record) and live.get(record.agent_id) == record.session_id:
            del live[record.agent_id]


def _edits_come_while_the_session_lives(history: History) -> Found:
    for id_, records in history.records_of.items():
        begun = [each.sequence for each in records if each.action == "refinement_queued"]
        ended = [each.sequence for each in records if _is_end(each)]
        for record in (each for each in records if each.action in EDITS):
            if not begun or record.sequence < begun[0]:
                yield id_, f"{record.action} before it was queued"
            if ended and record.sequence > ended[0]:
                yield id_, f"{record.action} after its end"


def _figures_are_those_of_the_records(history: History) -> Found:
    for session in history.sessions:
        records = history.records_of.get(session.id, ())
        mutations = sum(each.action in _MUTATIONS for each in records)
        if mutations != session.mutation_count:
            yield session.id, f"{session.mutation_count} changes, {mutations} on record"
        if session.removed_tokens > session.removable_tokens:
            yield session.id, f"removed {session.removed_tokens} of {session.removable_tokens}"


def _slots_are_served_once(history: History) -> Found:
    answered = Counter(
        (each.agent_id, each.slot_at)
        for each in history.sessions
        if each.slot_at is not None and each.status in ANSWERED
    )
    for (agent_id, slot_at), times in answered.items():
        if times > 1:
            yield f"agent {agent_id}", f"{times} sessions for the slot {slot_at}"


def slots_are_served(history: History) -> Found:
    """Each agent has a session for each slot, or one that ended after the slot had come."""
    of_agent: dict[int, list[Session]] = {}
    for session in history.sessions:
        of_agent.setdefault(session.agent_id, []).append(session)
    for agent_id, slots in history.slots.items():
        for slot, following in pairwise([*slots, float("inf")]):
            until = following + history.clocks_apart_seconds
            sessions = of_agent.get(agent_id, ())
            if not any(_serves(each, slot, until, history) for each in sessions):
                yield f"agent {agent_id}", f"no session for the slot {slot}"


def _serves(session: Session, slot: float, until: float, history: History) -> bool:
    if session.slot_at == slot:
        return True
    since = slot - history.clocks_apart_seconds
    ended_since = session.ended_at is not None and session.ended_at >= since
    return ended_since and session.created_at <= until


def _full_agents_are_asked(history: History) -> Found:
    asked = {session.agent_id for session in history.sessions}
    for agent_id in history.over_budget - asked:
        yield f"agent {agent_id}", "it was over its budget, and had no session"


# -- lost workers ---------------------------------------------------------------------------------


def _the_lost_end_in_time(history: History) -> Found:
    signs = {str(id_): sign.at for id_, sign in history.signs.items()}
    for session in history.sessions:
        end = _end_of(history, session)
        if session.error_kind != "worker_lost" or end is None or session.id not in signs:
            continue
        took = end.at - signs[session.id]
        allowed = LOST_WITHIN_SECONDS + _away_seconds(history, signs[session.id], end.at)
        if took > allowed + _LOOK_SECONDS:
            yield session.id, f"{took:.0f} s after its last heartbeat, allowed {allowed:.0f}"


def _away_seconds(history: History, since: float, until: float) -> float:
    """How long clocks, PostgreSQL or Valkey, which ticks come through, were away meanwhile."""
    away = [each for each in history.troubles if each.target in (*CLOCKS, POSTGRES, VALKEY)]
    return sum(max(0.0, min(until, each.until) - max(since, each.since)) for each in away)


def _every_failure_has_a_cause(history: History) -> Found:
    """A session fails because its worker was struck, or its model did; never by itself."""
    for session in history.sessions:
        if session.error_kind is None:
            continue
        asked = history.asked_of.get(session.id, [])
        if session.error_kind not in _OF_PROCESS:
            if not any(each.said not in ("yes", "no", "calls") for each in asked):
                yield session.id, f"{session.error_kind}, though its model did nothing wrong"
        elif not _was_struck(history, session, asked):
            outage = _outage_in(history, session)
            worker = asked[-1].worker if asked else "its worker"
            at = datetime.fromtimestamp(_span(history, session)[1], UTC)
            ended = f"ended {at:%H:%M:%S}{outage}"
            yield session.id, f"{session.error_kind}, though {worker} was well; {ended}"


def _was_struck(history: History, session: Session, asked: list[Asked]) -> bool:
    """Whether its worker was, while it lived; any worker, if it died before it asked its model."""
    workers = {asked[-1].worker} if asked else set(WORKERS)
    since, until = _span(history, session)
    return any(
        each.target in workers
        and each.kind in _STROKES
        and since - _LOOK_SECONDS <= each.since <= until
        for each in history.troubles
    )


def _outage_in(history: History, session: Session) -> str:
    since, until = _span(history, session)
    for each in history.troubles:
        if each.target == POSTGRES and each.since <= until and each.until >= since:
            return f"; PostgreSQL was away for {each.until - each.since:.0f} s"
    return ""


def _span(history: History, session: Session) -> tuple[float, float]:
    """From when it was queued to its end, by the database's clock."""
    records = history.records_of.get(session.id, ())
    times = [each.at for each in records if each.action == "refinement_queued" or _is_end(each)]
    return (min(times), max(times)) if times else (session.created_at, session.created_at)


# -- edits and the model --------------------------------------------------------------------------


def _edits_are_what_the_model_asked_for(history: History) -> Found:
    """No edit but by a call of the session's own model, and none twice."""
    for id_, records in history.records_of.items():
        wanted = [call for asked in history.asked_of.get(id_, ()) for call in asked.calls]
        for record in (each for each in records if each.action in _LOOP_EDITS):
            call = next((each for each in wanted if _fits(each, record)), None)
            if call is None:
                yield id_, f"{record.action} {record.memory_ids}, for which nobody asked"
            else:
                wanted.remove(call)


def _what_the_model_was_told_is_on_record(history: History) -> Found:
    for id_, asked in history.asked_of.items():
        calls = {call[0]: call for each in asked for call in each.calls}
        told = {seen[0]: seen for each in asked for seen in each.seen if seen[1] in _DONE}
        records = list(history.records_of.get(id_, ()))
        for call_id, type_, _ in told.values():
            record = next((each for each in records if _fits(calls[call_id], each)), None)
            if record is None:
                yield id_, f"the model was told {type_}, and nothing is on record"
            else:
                records.remove(record)
    kept = {str(memory.id) for memory in history.memories}
    for asked in history.asked:
        for _, type_, about in asked.seen:
            if type_ == "saved" and about not in kept:
                yield f"memory {about}", "the model was told that it is saved"


def _fits(call: tuple[str, str, tuple[int, ...]], record: Record) -> bool:
    _, action, ids = call
    action_of_record = _OF_CALL.get(action, ("", ""))[0]
    return record.action == action_of_record and set(ids) <= set(record.memory_ids)


def _only_those_who_said_yes_are_edited(history: History) -> Found:
    for session in history.sessions:
        answers = [each for each in history.asked_of.get(session.id, ()) if each.kind == "consent"]
        edits = [
            each for each in history.records_of.get(session.id, ()) if each.action in _LOOP_EDITS
        ]
        if edits and not any(each.said == "yes" for each in answers):
            yield session.id, "it was edited without a yes"
        if session.status == "declined" and all(each.said == "yes" for each in answers):
            yield session.id, "it ended as declined, though nobody said no"


def _only_those_who_said_yes_are_read(history: History) -> Found:
    for grant in (each for each in history.waited if each.kind == "access"):
        said = {each.said for each in history.asked_of.get(grant.id, ())}
        if grant.status in ("granted", "ended") and "yes" not in said:
            yield f"access {grant.id}", f"it is {grant.status} without a yes"
        if grant.status == "declined" and said <= {"yes"}:
            yield f"access {grant.id}", "it is declined, though nobody said no"


def _conversations_are_read(history: History) -> Found:
    for task in (each for each in history.waited if each.kind == "conversation"):
        if task.status == "completed" and task.id not in history.asked_of:
            yield f"conversation {task.id}", "it is completed, and no model has read it"


def _the_model_is_asked_for_known_runs(history: History) -> Found:
    known = {each.id for each in (*history.sessions, *history.waited)}
    for run in history.asked_of.keys() - known:
        yield f"run {run}", "the model was asked for it, and it has no row"


# -- memories -------------------------------------------------------------------------------------


def _constitutional_memories_stay(history: History) -> Found:
    found = {memory.id: memory for memory in history.memories}
    for id_, content in history.locked.items():
        memory = found.get(id_)
        if memory is None or memory.is_discarded or memory.content != content:
            yield f"memory {id_}", "it was constitutional, and is not as it was"
        elif not memory.is_constitutional:
            yield f"memory {id_}", "it is no longer constitutional"
    for record in history.records:
        if record.action in EDITS and record.locked_ids:
            yield f"memory {record.locked_ids[0]}", f"{record.action}, while constitutional"


def _nothing_is_saved_twice(history: History) -> Found:
    saved = {
        id_
        for record in history.records
        if record.action == "memory_saved"
        for id_ in record.memory_ids
    }
    times = Counter(memory.content for memory in history.memories if memory.id in saved)
    for content in history.saved_once:
        if times[content] > 1:
            ids = [each.id for each in history.memories if each.content == content]
            yield f"memories {ids}", "they were saved by one request"


def _the_audit_log_is_clean(history: History) -> Found:
    if history.audit_exit_code:
        yield "refine audit verify", f"exit code {history.audit_exit_code}"


# -- promises -------------------------------------------------------------------------------------


def _promises_are_kept(history: History) -> Found:
    memories = {str(memory.id): memory for memory in history.memories}
    sessions = {session.id: session for session in history.sessions}
    waited = {each.id: each for each in history.waited}
    changed = {
        id_
        for record in history.records
        if record.action != "memory_saved"
        for id_ in record.memory_ids
    }
    for promise in history.promises:
        subject = f"{promise.kind} {promise.id} of agent {promise.agent_id}"
        match promise.kind:
            case "memory":
                memory = memories.get(promise.id)
                if memory is None:
                    yield subject, "it was saved, and is gone"
                elif memory.content != promise.content and memory.id not in changed:
                    yield subject, "it says something else, and no record tells why"
            case "session" if promise.id not in sessions:
                yield subject, "it was queued, and is gone"
            case "undo" if promise.id not in sessions or not sessions[promise.id].is_undone:
                yield subject, "it was undone, and is not"
            case "conversation" | "access":
                run = waited.get(promise.id)
                if run is None:
                    yield subject, "it was accepted, and is gone"
                elif run.status in ("queued", "running", "requested") and not run.is_retried_later:
                    yield subject, f"it is still {run.status}"


def _flags_are_as_they_were_left(history: History) -> Found:
    """A flag that a user set or lifted, and nobody has touched since, is as they were told."""
    touched = {
        id_
        for record in history.records
        if record.action in ("memory_refinement_protect", UNDO)
        for id_ in record.memory_ids
    }
    for memory in history.memories:
        flag = history.flags.get(memory.id)
        if flag is not None and memory.id not in touched and memory.is_constitutional != flag:
            yield f"memory {memory.id}", f"its constitutional flag was left as {flag}"


def _nobody_meets_a_fault(history: History) -> Found:
    """What is away is called unavailable, with 503; no request finds a fault of Refine's own."""
    for fault in history.faults:
        yield "web", fault


# -- help -----------------------------------------------------------------------------------------


def _is_end(record: Record) -> bool:
    return record.action in _ENDS


def _end_of(history: History, session: Session) -> Record | None:
    return next((each for each in history.records_of.get(session.id, ()) if _is_end(each)), None)


RULES: tuple[Callable[[History], Found], ...] = (
    _every_session_ends_once,
    _no_session_comes_back_to_life,
    _an_agent_has_one_live_session,
    _edits_come_while_the_session_lives,
    _figures_are_those_of_the_records,
    _slots_are_served_once,
    slots_are_served,
    _full_agents_are_asked,
    _the_lost_end_in_time,
    _every_failure_has_a_cause,
    _edits_are_what_the_model_asked_for,
    _what_the_model_was_told_is_on_record,
    _only_those_who_said_yes_are_edited,
    _only_those_who_said_yes_are_read,
    _conversations_are_read,
    _the_model_is_asked_for_known_runs,
    _constitutional_memories_stay,
    _nothing_is_saved_twice,
    _the_audit_log_is_clean,
    _promises_are_kept,
    _flags_are_as_they_were_left,
    _nobody_meets_a_fault,
)
