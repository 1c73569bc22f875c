"""The texts of memories, now and before the sessions of the last 30 days changed them: an edit may
only lose what the ledger still says, as ``rules.meaning`` and a second reading judge.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import undefer_group

from refine import clock, settings
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.attested import plain_digest, plain_rows
from refine.models.audit import AuditLog
from refine.models.ledger.image import Change, changes_in, days_in, is_kept
from refine.models.ledger.memory import AgentMemory, content_of
from refine.models.runs.session.session import MUTATIONS, ROLLING_WINDOW, RefinementSession
from refine.rules.meaning import (
    LedgerTexts,
    Objection,
    is_said,
    likely_carriers,
    objections,
    speak_of_the_same,
)
from refine.rules.second_reading import Case, Reason, Stored, Verdict

# Returns the verdict of a second reading; None if the model gave no usable answer.
SecondReading = Callable[[Case], Verdict | None]


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
        """Return what is wrong with an edit that says the same, in so far as code can tell."""
        self.follow(session.agent)
        if edit.reason != "same":
            return []
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
