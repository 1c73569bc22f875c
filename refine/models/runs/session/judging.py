"""Who decides whether an edit keeps what memories say: the code, and a second reading of it."""

from collections.abc import Sequence
from decimal import Decimal
from math import ceil
from typing import Literal

from refine.errors import Refused
from refine.models.ledger import AgentMemory
from refine.models.runs.session.session import RefinementSession
from refine.models.runs.session.survival import LedgerReading, Replacement
from refine.rules.meaning import Objection, details_lost, refusal
from refine.rules.second_reading import Case

# How many memories a session may retire.
MAX_RETIRED = 3
# How often second readings may overrule the code: in a session, and for a share of the ledger in
# 30 days.
MAX_OVERRULED = 3
_OVERRULED_SHARE = Decimal("0.05")

_MEND = "Nothing was changed. A second reading found that {}. Mend it, or leave the memory as it is"


# Why an edit was refused that is well formed, as the session's stats count it.
Cause = Literal["sure", "doubtful", "second_reading", "retiring"]


class EditRefused(Refused):
    """A rule forbids this edit; ``memory`` is its present state, if the agent has not seen it."""

    def __init__(
        self, message: str, memory: AgentMemory | None = None, cause: Cause | None = None
    ) -> None:
        self.memory = memory
        self.cause = cause
        super().__init__(message)


class Unread(Exception):
    """An edit has no second reading yet, at least not in its present state."""

    def __init__(self, case: Case) -> None:
        self.case = case
        super().__init__("an edit without a second reading")


def judge(session: RefinementSession, edit: Replacement, reading: LedgerReading | None) -> None:
    """Refuse an edit that loses or falsifies what memories say; only count that, if so set."""
    reading = reading or LedgerReading()
    found: list[Objection] = []
    if edit.reason == "same":
        found = reading.objections(session, edit)
    else:
        _refuse_retiring(session, edit, reading)
    if reading.keeps_details:
        _decide(session, edit, found, reading)
    if found:
        session.details_lost += details_lost(found)


def _decide(
    session: RefinementSession,
    edit: Replacement,
    found: Sequence[Objection],
    reading: LedgerReading,
) -> None:
    """Sure objections of the code are final; a second reading may overrule doubtful ones."""
    if any(each.is_sure for each in found):
        raise EditRefused(refusal(found), cause="sure")
    verdict = None
    if reading.second is not None and (not found or _may_overrule(session)):
        verdict = reading.second(reading.case(session, edit))
        if verdict is None:
            session.count("unread")
    if verdict is not None and not verdict.is_clean:
        raise EditRefused(_MEND.format(verdict), cause="second_reading")
    if found and verdict is None:
        raise EditRefused(refusal(found), cause="doubtful")
    if found:
        session.count("overruled")


def _may_overrule(session: RefinementSession) -> bool:
    overruled = session.counted("overruled")
    if overruled >= MAX_OVERRULED:
        return False
    recently = session.overruled_recently(session.agent)
    return overruled + recently < ceil(_OVERRULED_SHARE * (session.memories_before or 0))


def _refuse_retiring(session: RefinementSession, edit: Replacement, reading: LedgerReading) -> None:
    left = MAX_RETIRED - session.counted("retired")
    if len(edit.removed) > left:
        raise EditRefused(
            f"At most {MAX_RETIRED} memories may go as outdated or wrong in a session; {left} of "
            "them are left",
            cause="retiring",
        )
    successor = edit.content if edit.by is None else edit.by.content
    for memory in edit.removed:
        if edit.by is not None and edit.by.created_at <= memory.created_at:
            raise EditRefused(
                f"Memory #{edit.by.id} cannot replace #{memory.id}: it is not of a later date",
                cause="retiring",
            )
        if successor is not None and not reading.speak_of_the_same(
            session.agent, memory.content, successor
        ):
            raise EditRefused(
                f"What is to replace #{memory.id} does not speak of the same: it has too few "
                "words in common with it",
                cause="retiring",
            )
