"""The texts of memories, now and before the sessions of the last 30 days changed them: an edit may
only lose what the ledger still says (``rules.meaning``).
"""

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import undefer

from refine import clock, settings
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.attested import plain_digest, plain_rows
from refine.models.audit import AuditLog
from refine.models.ledger import AgentMemory, Change, changes_in, is_kept
from refine.models.ledger.memory import content_of
from refine.models.runs.session.session import MUTATIONS
from refine.rules.meaning import Ledger, Objection, is_said, objections

LOOKS_BACK = timedelta(days=30)


class LedgerReading:
    """The kept core memories, and the originals before them; kept for all calls of a tool, and
    read again when the agent's ledger version shows another change.
    """

    def __init__(self) -> None:
        rules = settings.current()
        self.keeps_details, self._share = rules.details == "keep", rules.likeness
        self._version: int | None = None
        self._ledger = Ledger()
        self._originals: list[str] = []
        # the memories of each session whose text before that session is known, or that it made
        self._known: set[tuple[uuid.UUID | None, int]] = set()
        self._last_sequence = 0

    def objections(
        self,
        session_id: uuid.UUID,
        agent: Agent,
        removed: Collection[AgentMemory],
        content: str | None,
    ) -> list[Objection]:
        """Return what is wrong with ``content`` in place of memories; None: they are deleted."""
        self.follow(agent)
        return objections(
            self._ledger,
            {memory.id: memory.content for memory in removed},
            content,
            self._originals,
            own={memory.id for memory in removed if (session_id, memory.id) in self._known},
            share=self._share,
            months={f"{memory.created_at:%Y-%m}" for memory in removed},
        )

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
        self._read_originals(agent, clock.now() - LOOKS_BACK)
        self._version = agent.ledger_version

    def _read_originals(self, agent: Agent, since: datetime) -> None:
        """For each session and memory, the text before its first edit counts: no own words."""
        edits = (
            select(AuditLog)
            .options(undefer(AuditLog.sealed_text))
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
        for change in changes:
            touched = (record.session_id, change.memory_id)
            if change.before is not None and touched not in self._known:
                self._originals.append(change.before["content"])
            self._known.add(touched)
        self._last_sequence = record.sequence
