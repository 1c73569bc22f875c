"""The texts of memories, now and before the sessions of the last 30 days changed them: an edit may
only lose what the ledger still says, as ``rules.meaning`` and a second reading judge.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Literal, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import undefer_group

from refine import clock, settings
from refine.errors import Refused
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.attested import plain_digest, plain_rows
from refine.models.audit import AuditLog
from refine.models.ledger import AgentMemory, Change, changes_in, is_kept
from refine.models.ledger.image import days_in
from refine.models.ledger.memory import content_of
from refine.models.runs.session.session import MUTATIONS, ROLLING_WINDOW, RefinementSession
from refine.rules.meaning import (
    LedgerTexts,
    Objection,
    details_lost,
    is_said,
    likely_carriers,
    memories_worn,
    objections,
    refusal,
    speak_of_the_same,
)
from refine.rules.second_reading import Case, Reason, Stored, Verdict

# Returns the verdict of a second reading; None if the model gave no usable answer.
SecondReading = Callable[[Case], Verdict | None]

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
        self.memory = memory
        self.cause = cause
        self.advice = advice
        super().__init__(message)


class Unread(Exception):
    """An edit has no second reading yet, at least not in its present state."""

    def __init__(self, case: Case) -> None:
        self.case = case
        super().__init__("an edit without a second reading")


class Replacement(NamedTuple):
    """``content`` (None: nothing) in place of memories; ``by``: a kept one that carries what is
    deleted, or replaces it.
    """

    removed: Sequence[AgentMemory]
    content: str | None
    reason: Reason = "same"
    by: AgentMemory | None = None

    @property
    def removed_texts(self) -> dict[int, str]:
        return {memory.id: memory.content for memory in self.removed}


class LedgerReading:
    """The kept core memories, and the originals before them; kept for all calls of a tool, and
    read again when the agent's ledger version shows another change.
    """

    def __init__(self, second: SecondReading | None = None) -> None:
        """Without a ``second`` reading the code decides alone."""
        rules = settings.current()
        self.keeps_details, self._share = rules.details == "keep", rules.likeness
        self.second = second
        self._version: int | None = None
        self._ledger = LedgerTexts()
        self._originals: list[str] = []
        # of each memory, by text, what it and those that were merged into it said before sessions
        self._earlier: dict[int, dict[str, Stored]] = {}
        # the memories of each session whose text before that session is known, or that it made
        self._known: set[tuple[uuid.UUID | None, int]] = set()
        self._last_sequence = 0
        # what earlier edits of the same reply will take away: it carries nothing afterwards
        self.expected_to_go: set[int] = set()

    def objections(self, session: RefinementSession, edit: Replacement) -> list[Objection]:
        """Return what is wrong with an edit, in so far as code can tell."""
        return objections(
            self._ledger,
            edit.removed_texts,
            edit.content,
            self._originals,
            own={memory.id for memory in edit.removed if (session.id, memory.id) in self._known},
            share=self._share,
            months={
                f"{at:%Y-%m}"
                for memory in edit.removed
                for at in (memory.created_at, memory.latest_at)
            },
        )

    def case(self, session: RefinementSession, edit: Replacement) -> Case:
        """Return an edit as a second reading sees it, with what was said before sessions."""
        before = dict[str, Stored]()
        for memory in edit.removed:
            is_own = (session.id, memory.id) in self._known
            earlier = self._earlier.get(memory.id, {}) if edit.reason == "same" else {}
            present = {} if is_own and earlier else {memory.content: _stored(memory)}
            before |= {**earlier, **present}
        kept = [edit.by] if edit.by is not None else self._likely_carriers(edit)
        return Case(edit.reason, tuple(before.values()), edit.content, tuple(map(_stored, kept)))

    def _likely_carriers(self, edit: Replacement) -> list[AgentMemory]:
        if edit.content is not None:
            return []
        (text,) = edit.removed_texts.values()
        ids = likely_carriers(self._ledger, text, self.expected_to_go.union(edit.removed_texts))
        found = db.session.scalars(select(AgentMemory).where(AgentMemory.id.in_(ids)))
        return sorted(found, key=lambda memory: ids.index(memory.id))

    def speak_of_the_same(self, one: str, other: str) -> bool:
        return speak_of_the_same(self._ledger, one, other)

    def texts_lost_by(
        self,
        agent: Agent,
        changes: Iterable[Change],
        later: Iterable[AuditLog],
    ) -> set[tuple[int, int]]:
        """Return texts of ``later`` edits lost by ``changes``, as (sequence, memory id)."""
        after = {change.memory_id: change.after for change in changes}
        kept = self._fetch(agent)
        removed = [text for id_, text in kept.items() if id_ in after]
        remaining = [text for id_, text in kept.items() if id_ not in after]
        remaining += [image["content"] for image in after.values() if is_kept(image)]
        return {
            (record.sequence, change.memory_id)
            for record in later
            for change in changes_in(record.data, record.sealed)
            if change.before is not None and is_kept(change.before)
            if is_said(change.before["content"], removed, self._share)
            and not is_said(change.before["content"], remaining, self._share)
        }

    def apply_edit(self, record: AuditLog, changes: Collection[Change], since: int) -> None:
        """Follow an edit of the ledger's version ``since``; discard this on a rollback."""
        if self._version != since:
            return
        self._take_over(record, changes)
        for change in changes:
            self._ledger.drop(change.memory_id)
            if is_kept(change.after):
                self._ledger.put(change.memory_id, change.after["content"])
        # one for each memory: a wrong guess means that the ledger is read again
        self._version = since + len(changes)

    @staticmethod
    def _fetch(agent: Agent) -> dict[int, str]:
        """Return the texts by id; a row changed outside the application says nothing."""
        key = agent.data_key()
        core = plain_rows(AgentMemory).where(
            AgentMemory.agent_id == agent.id, AgentMemory.is_kept_core
        )
        return {
            row.id: content_of(row, key)
            for row in db.session.execute(core)
            if row.row_digest == plain_digest(AgentMemory, row, key)
        }

    def follow(self, agent: Agent) -> None:
        """Read the ledger again if it is another version, only what changed of it."""
        if self._version == agent.ledger_version:
            return
        self._ledger.keep_only(self._fetch(agent))
        self._read_originals(agent, clock.now() - ROLLING_WINDOW)
        self._version = agent.ledger_version

    def _read_originals(self, agent: Agent, since: datetime) -> None:
        """For each session and memory, the text before its first edit counts: no own words, and
        nothing that was retired.
        """
        edits = (
            select(AuditLog)
            .options(undefer_group("sealed"))
            .where(
                AuditLog.agent_id == agent.id,
                AuditLog.action.in_(MUTATIONS),
                AuditLog.sequence > self._last_sequence,
                AuditLog.created_at > since,
            )
            .order_by(AuditLog.sequence)
        )
        key = agent.data_key()
        for record in db.session.scalars(edits):
            self._take_over(record, changes_in(record.data, record.sealed_under(key)))

    def _take_over(self, record: AuditLog, changes: Iterable[Change]) -> None:
        changes = list(changes)
        earlier: dict[str, Stored] = {}
        for change in changes:
            touched = (record.session_id, change.memory_id)
            before, is_retired = change.before, change.after["retired_reason"] is not None
            if before is not None and not is_retired:
                earlier |= self._earlier.get(change.memory_id, {})
                if touched not in self._known:
                    self._originals.append(before["content"])
                    stored = Stored(days_in(before), before["content"])
                    earlier[stored.text] = stored
            self._known.add(touched)
        self._earlier |= {each.memory_id: earlier for each in changes if is_kept(each.after)}
        self._last_sequence = record.sequence


def _stored(memory: AgentMemory) -> Stored:
    return Stored(memory.days, memory.content)


# -- who decides ----------------------------------------------------------------------------------


def judge(session: RefinementSession, edit: Replacement, reading: LedgerReading | None) -> None:
    """Refuse an edit that loses or falsifies what memories say; only count that, if so set."""
    reading = reading or LedgerReading()
    reading.follow(session.agent)
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
    memories = min(each.memories_before for each in standing if each.memories_before)
    is_room = before + worn <= max(least, int(share * memories))
    return is_room and session.counted("worn") + worn <= MAX_OVERRULED


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
