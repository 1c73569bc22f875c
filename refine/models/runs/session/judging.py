"""Whether an edit may stand: what code and a second reading object to, and within which limits."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Literal

from sqlalchemy import func, or_, select

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.models.ledger.memory import CORRECTION, AgentMemory
from refine.models.runs.session.session import ROLLING_WINDOW, RefinementSession
from refine.models.runs.session.survival import LedgerReading, Replacement
from refine.rules.meaning import Objection, details_lost, memories_worn, refusal

# How many memories a session may retire.
MAX_RETIRED = 3
# How often second readings may overrule the code: in a session, and for a share of the ledger in
# 30 days. As many memories may lose words in a session.
MAX_OVERRULED = 3
_OVERRULED_SHARE = Decimal("0.05")
# In so many days this share of the ledger may lose words, or at least so many memories: where a
# second reading found nothing missing, and by the code alone.
_WORN_WITHIN = timedelta(days=60)
_READ, _CODE_ALONE = (3, Decimal("0.07")), (1, Decimal("0.04"))

_UNREAD = "what is {} goes only after a second reading, which gave no usable answer"
_MEND = "Mend all of it, or leave the memory as it is"
_MERGE = "Merge it with a memory so that all of it stays, or leave it as it is"

# Why an edit was refused for what it does to memories, as the session's stats count it. What is
# refused for its form or a limit counts for nothing.
Cause = Literal["sure", "doubtful", "second_reading", "retiring"]
CAUSES: dict[Cause, str] = {
    "sure": "for a changed meaning",
    "doubtful": "for lost words",
    "second_reading": "by the second reading",
    "retiring": "for retiring wrongly",
}


class EditRefused(Refused):
    """A rule forbids this edit; ``memory`` is its present state, if the agent has not seen it.

    ``advice`` says how it may pass; what has none has a message that does.
    """

    def __init__(
        self,
        message: str,
        memory: AgentMemory | None = None,
        cause: Cause | None = None,
        advice: str = "",
    ) -> None:
        self.memory, self.cause, self.advice = memory, cause, advice
        super().__init__(message)


def judge(
    session: RefinementSession,
    edit: Replacement,
    found: Sequence[Objection],
    reading: LedgerReading,
) -> None:
    """Refuse an edit that loses or falsifies what memories say; only count that, if so set."""
    if edit.reason != "same":
        _refuse_retiring(session, edit, reading)
    if reading.keeps_details:
        _decide(session, edit, found, reading)
    session.details_lost += details_lost(found)


def _decide(
    session: RefinementSession,
    edit: Replacement,
    found: Sequence[Objection],
    reading: LedgerReading,
) -> None:
    """Sure objections of the code are final; a second reading may overrule doubtful ones."""
    faults = [refusal(found, is_deletion=edit.content is None)] if found else []
    if any(each.is_sure for each in found):
        raise _refused(edit, faults, "sure")
    verdict = None
    if reading.second is not None and _has_room(session, found, is_read=True):
        verdict = reading.second(reading.case(session, edit))
        if verdict is None:
            session.count("unread")
            if edit.reason != "same":
                raise _refused(edit, [_UNREAD.format(edit.reason)], "retiring")
    if verdict is not None and not verdict.is_clean:
        raise _refused(edit, [*faults, f"a second reading found that {verdict}"], "second_reading")
    is_doubted = any(not each.is_slight for each in found)
    if verdict is None and (is_doubted or not _has_room(session, found, is_read=False)):
        raise _refused(edit, faults, "doubtful")
    if is_doubted:
        session.count("overruled")
    if found:
        session.count("worn", memories_worn(found))


def _refused(edit: Replacement, faults: Sequence[str], cause: Cause) -> EditRefused:
    advice = _MERGE if edit.content is None and edit.reason == "same" else _MEND
    return EditRefused(f"Nothing was changed: {'; '.join(faults)}", cause=cause, advice=advice)


def _has_room(session: RefinementSession, found: Sequence[Objection], *, is_read: bool) -> bool:
    """Tell whether few enough doubts were overruled, and few enough memories lost words."""
    if not found:
        return True
    now = clock.now()
    standing = [session, *session.standing_since(now - _WORN_WITHIN)]
    lately = [each for each in standing if (each.ended_at or now) > now - ROLLING_WINDOW]
    overruled = sum(each.counted("overruled") for each in lately)
    most = ceil(_OVERRULED_SHARE * (session.memories_before or 0))
    if overruled >= most and not all(each.is_slight for each in found):
        return False
    worn = memories_worn(found)
    before = sum(each.counted("worn") for each in standing)
    least, share = _READ if is_read else _CODE_ALONE
    # of the smallest ledger: nobody gains room by saving more
    ledgers = [each.memories_before for each in standing if each.memories_before]
    memories = min(*ledgers, _not_saved_since(now - _WORN_WITHIN, session.agent_id))
    is_room = before + worn <= max(least, int(share * memories))
    return is_room and session.counted("worn") + worn <= MAX_OVERRULED


def _not_saved_since(since: datetime, agent_id: int) -> int:
    """Count kept core memories without those that the agent has saved itself since then."""
    source, is_of_session = AgentMemory.source, AgentMemory.session_id.is_not(None)
    is_imported = source.is_not(None) & (source != CORRECTION)
    found = select(func.count()).where(
        AgentMemory.agent_id == agent_id,
        AgentMemory.is_kept_core,
        or_(AgentMemory.recorded_at <= since, is_of_session, is_imported),
    )
    return db.session.scalar(found) or 0


def _refuse_retiring(session: RefinementSession, edit: Replacement, reading: LedgerReading) -> None:
    left = MAX_RETIRED - session.counted("retired")
    if len(edit.removed) > left:
        raise _cannot_retire(
            f"at most {MAX_RETIRED} memories may go as outdated or wrong in a session, and {left} "
            "of them are left",
            "Take fewer, or leave them for a later session",
        )
    successor = edit.content if edit.by is None else edit.by.content
    new = "the new text" if edit.by is None else f"memory #{edit.by.id}"
    for memory in edit.removed:
        if memory.session_id == session.id:  # it may stand for as many as a merge takes
            raise _cannot_retire(
                f"memory #{memory.id} is of this session, which may not retire it",
                "Leave it as it is",
            )
        if edit.by is not None and edit.by.latest_at <= memory.latest_at:
            raise _cannot_retire(
                f"{new} cannot replace #{memory.id}: it is not of a later date",
                "Name a later one with by, or leave it as it is",
            )
        if successor is not None and not reading.speak_of_the_same(memory.content, successor):
            raise _cannot_retire(
                f"{new} has too few words in common with #{memory.id} to speak of the same",
                "Say what holds of the same subject, or leave it as it is",
            )


def _cannot_retire(fault: str, advice: str) -> EditRefused:
    return EditRefused(f"Nothing was changed: {fault}", cause="retiring", advice=advice)
