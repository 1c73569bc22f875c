"""The texts of memories, now and before the sessions of the last 30 days changed them: an edit may
only lose what the ledger still says (``rules.meaning``).
"""

import uuid
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.orm import undefer

from refine import clock
from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.ledger import AgentMemory, Change, changes_in, is_kept
from refine.models.runs.session.session import MUTATIONS
from refine.rules.meaning import Ledger, Objection, is_said, objections

LOOKS_BACK = timedelta(days=30)


class LedgerReading:
    """The kept core memories, and the originals before them; kept for all calls of a tool, and
    read again when the agent's ledger version shows another change.
    """

    def __init__(self) -> None:
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
        share: Decimal,
    ) -> list[Objection]:
        """Return what is wrong with ``content`` in place of memories; None: they are deleted."""
        self._read_changes(agent)
        return objections(
            self._ledger,
            {memory.id: memory.content for memory in removed},
            content,
            self._originals,
            own={memory.id for memory in removed if (session_id, memory.id) in self._known},
            share=share,
            months={f"{memory.created_at:%Y-%m}" for memory in removed},
        )

    def texts_lost_by(
        self,
        agent: Agent,
        changes: Iterable[Change],
        later: Iterable[AuditLog],
        share: Decimal,
    ) -> set[tuple[int, int]]:
        """Return texts of ``later`` edits lost by ``changes``, as (sequence, memory id)."""
        after = {change.memory_id: change.after for change in changes}
        kept = {memory.id: memory.content for memory in self._fetch(agent)}
        removed = [text for id_, text in kept.items() if id_ in after]
        remaining = [text for id_, text in kept.items() if id_ not in after]
        remaining += [image["content"] for image in after.values() if is_kept(image)]
        return {
            (record.sequence, change.memory_id)
            for record in later
            for change in changes_in(record.data, record.sealed)
            if change.before is not None and is_kept(change.before)
            if is_said(change.before["content"], removed, share)
            and not is_said(change.before["content"], remaining, share)
        }

    def apply_edit(
        self,
        record: AuditLog,
        changes: Iterable[Change],
        memories: Collection[AgentMemory],
        *,
        since: int,
        version: int,
    ) -> None:
        """Follow an edit from version ``since`` to ``version``; discard this on a rollback."""
        if self._version != since:
            return
        self._take_over(record, changes)
        for memory in memories:
            self._ledger.drop(memory.id)
            if memory.is_kept_core:
                self._ledger.put(memory.id, memory.content)
        self._version = version

    @staticmethod
    def _fetch(agent: Agent) -> list[AgentMemory]:
        """A row changed outside the application says nothing."""
        core = db.session.scalars(agent.ledger.core())
        return [memory for memory in core if memory.is_genuine]

    def _read_changes(self, agent: Agent) -> None:
        if self._version == agent.ledger_version:
            return
        self._ledger.keep_only({memory.id: memory.content for memory in self._fetch(agent)})
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
