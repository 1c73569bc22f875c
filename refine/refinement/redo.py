"""Redo: an undo of a session is undone, exactly and content-blind.

The memories return to what the session had left, under the rules of an undo (``time_machine``).
Because a redo removes memories again, the rules of a session apply as well: it may remove no more
than a session that began now, what it removes counts from now on, and the ledger must keep what it
said. Only an undo of one session by itself can be undone, and only by the side that made it: the
agent or an admin.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import exists, select
from sqlalchemy.orm import undefer

from refine import clock
from refine.errors import Refused, RowAltered
from refine.extensions import db
from refine.models import Agent, AuditLog, RefinementSession, User
from refine.models.ledger import Change
from refine.models.runs.session import Channel
from refine.refinement.replay import Obstacle, Replay, in_effect, records_since
from refine.refinement.time_machine import (
    TAKING_AWAY,
    Undo,
    UndoConflict,
    carry_out,
    effect_of,
    no_longer_said,
    require_last,
    require_no_live,
)
from refine.rules.quantities import abbreviated


class RedoConflict(UndoConflict):
    """Memories are no longer as the undo left them; nothing was changed."""

    said = "nothing was redone, because these memories were changed after the undo"

    def __init__(self, obstacles: Sequence[Obstacle], unexplained: Collection[int]) -> None:
        super().__init__(obstacles, unexplained, and_after=True)


def is_offered(session: RefinementSession) -> bool:
    """Tell, by one query at most, whether a person may ask for a redo: ``redo`` checks the rest."""
    if not session.can_redo:
        return False
    together = exists().where(
        AuditLog.agent_id == session.agent_id,
        AuditLog.action == "memory_refinement_rollback",
        AuditLog.created_at == session.undone_at,
        AuditLog.data["and_after"].as_boolean(),
    )
    return not db.session.scalar(select(together))


def preview(session: RefinementSession, through: Channel) -> Undo:
    """Return what ``redo`` would do now, or raise what it would raise. Changes nothing."""
    return _planned(session, through, clock.now())


def redo(
    session: RefinementSession,
    *,
    through: Channel,
    user: User | None = None,
    at: datetime | None = None,
) -> Undo:
    """Undo the undo of the session, in the caller's transaction.

    Recorded as ``memory_refinement_rollback``, with a journal memory for the agent. Raises Refused,
    and RedoConflict. A second redo changes nothing.
    """
    at = at or clock.now()
    plan = _planned(session, through, at)
    if plan.is_done:
        return plan
    session.undone_at = session.undone_by_id = session.undone_through = None
    session.redone_at, session.redone_through = at, through
    session.redone_by_id = user.id if user is not None else None
    data = {"operation": "redo", "by": through, "removed_tokens": session.removed_tokens}
    carry_out(plan, data, _note(plan, through), user=user, at=at)
    return plan


def redo_own_last(session: RefinementSession, *, at: datetime | None = None) -> Undo:
    """Undo the agent's own undo of its last session with changes."""
    require_last(session, "redo")
    return redo(session, through="agent", at=at)


def _planned(session: RefinementSession, through: Channel, at: datetime) -> Undo:
    agent = session.agent
    session.lock()
    if session.undone_at is None:
        if session.redone_at is None:
            raise Refused("the session is not undone, so there is nothing to redo")
        return Undo(session, [], effect_of(agent, []), is_done=True)
    require_no_live(agent, "redo")
    _require_same_side(session, through)
    records = records_since(session)
    undo = _undo_in(records, session)
    _require_allowance(session, at)
    replay = Replay(agent, [undo], at)
    if replay.blocked:
        later = [record for record in records if record.sequence > undo.sequence]
        raise RedoConflict(*replay.in_the_way(later))
    changes = replay.changes()
    if not changes:  # earlier versions also undid sessions that had left no changes
        raise Refused("the undo changed no memory, so there is nothing to redo")
    _require_still_said(agent, changes, _edits_without(undo))
    return Undo(
        session,
        [session],
        effect_of(agent, changes),
        changes=changes,
        sequences=[undo.sequence],
    )


def _require_same_side(session: RefinementSession, through: Channel) -> None:
    """Only the agent redoes what it undid itself, and only people what people undid."""
    if (session.undone_through == "agent") != (through == "agent"):
        by = "the agent itself" if session.undone_through == "agent" else "an admin"
        raise Refused(f"{by} undid the session, and nobody else can redo it")


def _undo_in(records: Sequence[AuditLog], session: RefinementSession) -> AuditLog:
    """Return the record of the session's last undo, among the agent's records."""
    id_ = str(session.id)
    undos = (each for each in records if id_ in each.data.get("undone_sessions", ()))
    undo = next(undos, None)
    if undo is None or not undo.is_linked():
        raise RowAltered(f"the undo of {session.row_name}")
    if undo.data["and_after"]:
        raise Refused(
            "the session was undone together with everything after it, and such an undo cannot be "
            "undone"
        )
    return undo


def _require_allowance(session: RefinementSession, at: datetime) -> None:
    """This and what sessions removed meanwhile may not exceed what sessions may remove."""
    allowed = RefinementSession.removable_now(session.agent, at)
    if session.removed_tokens > allowed:
        raise Refused(
            f"it would remove {session.removed_tokens:,} tokens again, and a session may remove at "
            f"most {allowed:,} now"
        )


def _edits_without(undo: AuditLog) -> list[AuditLog]:
    """Return the agent's edits of all time that are in effect without this undo, newest first."""
    edits = (
        select(AuditLog)
        .options(undefer(AuditLog.sealed_text))
        .where(
            AuditLog.agent_id == undo.agent_id,
            AuditLog.action.in_([*TAKING_AWAY, undo.action]),
            AuditLog.id != undo.id,
        )
    )
    return in_effect(db.session.scalars(edits.order_by(AuditLog.sequence.desc())).all())


def _require_still_said(agent: Agent, changes: Sequence[Change], edits: Sequence[AuditLog]) -> None:
    """The ledger must still say everything that sessions removed, before this one and since."""
    if unsaid := no_longer_said(agent, changes, edits):
        ids = sorted({memory_id for _, memory_id in unsaid})
        named = abbreviated([f"#{id_}" for id_ in ids], ", ")
        raise Refused(f"no memory would still say what {named} said; nothing was redone")


def _note(plan: Undo, through: Channel) -> str:
    who = "I" if through == "agent" else "An admin"
    of = f"my refinement session of {plan.session.created_at:%Y-%m-%d}"
    return f"{who} undid the undo of {of}: {plan.effect}."
