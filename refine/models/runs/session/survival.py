"""What an agent's memories say, and said before its sessions changed them.

Sessions may merge, rewrite and delete only what the ledger goes on saying (``rules.survival``).
That is held against the texts of the snapshot and, so that nothing is worn away in small steps,
against every text that the agent's sessions took away or rewrote before.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal

from sqlalchemy import BigInteger, any_, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import undefer

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.ledger import AgentMemory, Change, changes_in, is_kept
from refine.models.runs.session.breaker import MUTATIONS
from refine.models.runs.session.session import RefinementSession
from refine.rules.details import Reading, read
from refine.rules.survival import Loss, Original, losses


class LedgerReading:
    """The kept core memories of an agent, and the originals before them, read for comparing.

    Reading a ledger takes time, so a tool keeps one of these for all of its calls. What changed
    meanwhile is read again, unless the version of the ledger on the agent's row, which is locked,
    tells that nothing did: a trigger counts every change, whoever makes it.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._kept: dict[int, tuple[str, Reading]] = {}
        self._originals: list[Original] = []
        # the memories of each session whose text before that session is known, or that it made
        self._known: set[tuple[uuid.UUID | None, int]] = set()
        self._last_sequence = 0

    def losses(
        self,
        session: RefinementSession,
        removed: Collection[AgentMemory],
        content: str | None,
        share: Decimal,
    ) -> list[Loss]:
        """Return what the ledger would no longer say without ``removed``, but with ``content``.

        ``content`` is the text of a merge or an update; None for a deletion.
        """
        self._read_changes(session.agent)
        ids = {memory.id for memory in removed}
        remaining = [reading for id_, (_, reading) in self._kept.items() if id_ not in ids]
        if content is not None:
            remaining.insert(0, read(content))
        return losses(
            [*self._originals, *self._untouched(session, ids)],
            [self._kept[id_][1] for id_ in ids],
            remaining,
            share=share,
        )

    def unsaid_texts(
        self, agent: Agent, changes: Iterable[Change], later: Iterable[AuditLog], share: Decimal
    ) -> set[tuple[int, int]]:
        """Return which texts would no longer be said once ``changes`` are made.

        Looked at are the texts that ``later`` edits took away or rewrote, because the ledger said
        them as it is now. Each is given by the sequence of its record and the id of its memory.
        """
        self._read_kept(agent)
        after = {change.memory_id: change.after for change in changes}
        removed = [reading for id_, (_, reading) in self._kept.items() if id_ in after]
        remaining = [reading for id_, (_, reading) in self._kept.items() if id_ not in after]
        remaining += [read(image["content"]) for image in after.values() if is_kept(image)]
        return {
            (record.sequence, change.memory_id)
            for record in later
            for change in changes_in(record.data, record.sealed)
            if change.before is not None and is_kept(change.before)
            if losses(
                [Original(change.memory_id, read(change.before["content"]))],
                removed,
                remaining,
                share=share,
            )
        }

    def follow(self, record: AuditLog, changes: Iterable[Change], agent: Agent) -> None:
        """Take over an edit that was just flushed, with its record.

        Forget this reading if the edit is not committed.
        """
        self._take_over(record, changes)
        for change in changes:
            memory = db.session.get_one(AgentMemory, change.memory_id)
            if memory.is_kept_core:
                self._kept[memory.id] = memory.row_digest, read(change.after["content"])
            else:
                self._kept.pop(memory.id, None)
        self._version = agent.ledger_version

    def _read_changes(self, agent: Agent) -> None:
        if self._version != agent.ledger_version:
            self._read_kept(agent)
            self._read_originals(agent)
            self._version = agent.ledger_version

    def _untouched(self, session: RefinementSession, ids: Collection[int]) -> Iterator[Original]:
        """Those of the memories that the session has not changed yet, as they are."""
        for id_ in sorted(ids):
            if (session.id, id_) not in self._known:
                yield Original(id_, self._kept[id_][1])

    def _read_kept(self, agent: Agent) -> None:
        """Read the kept core memories that are new or were changed; forget those that went.

        A row that was changed outside the application carries nothing.
        """
        of_agent = select(AgentMemory.id, AgentMemory.row_digest).where(
            AgentMemory.agent_id == agent.id, AgentMemory.is_kept_core
        )
        digests = {row.id: row.row_digest for row in db.session.execute(of_agent)}
        self._kept = {
            id_: known for id_, known in self._kept.items() if digests.get(id_) == known[0]
        }
        unread_ids = [id_ for id_ in digests if id_ not in self._kept]
        unread = select(AgentMemory).where(
            AgentMemory.id == any_(literal(unread_ids, ARRAY(BigInteger)))
        )
        key = agent.data_key()
        for memory in db.session.scalars(unread.execution_options(populate_existing=True)):
            if memory.is_genuine_under(key):
                self._kept[memory.id] = memory.row_digest, read(memory.content_under(key))

    def _read_originals(self, agent: Agent) -> None:
        """Read the texts that sessions changed since they were last read.

        For each session and memory the text before the session's first edit counts. What the
        session wrote itself does not, so that it can take back its own words.
        """
        newer = (
            select(AuditLog)
            .options(undefer(AuditLog.sealed_text))
            .where(
                AuditLog.agent_id == agent.id,
                AuditLog.action.in_(MUTATIONS),
                AuditLog.sequence > self._last_sequence,
            )
            .order_by(AuditLog.sequence)
        )
        for record in db.session.scalars(newer):
            self._take_over(record, changes_in(record.data, record.sealed))

    def _take_over(self, record: AuditLog, changes: Iterable[Change]) -> None:
        for change in changes:
            touched = (record.session_id, change.memory_id)
            if change.before is not None and touched not in self._known:
                reading = read(change.before["content"])
                self._originals.append(Original(change.memory_id, reading))
            self._known.add(touched)
        self._last_sequence = record.sequence
