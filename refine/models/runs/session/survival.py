"""What an agent's memories say, and said before its sessions changed them.

Sessions may merge, rewrite and delete only what the ledger continues to say (``rules.survival``).
Edits are compared with the texts of the snapshot and, so that nothing is lost in small steps, with
every text that the agent's sessions removed or rewrote before.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache

from sqlalchemy import Select, bindparam, select, tuple_
from sqlalchemy.orm import undefer

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.audit import AuditLog
from refine.models.ledger import AgentMemory, Change, changes_in, is_kept
from refine.models.runs.session.session import MUTATIONS
from refine.rules.details import Reading, read
from refine.rules.survival import Loss, Original, Repeatable, losses

# How many memories are fetched at first, and at most.
_FETCHED_FIRST, _FETCHED_AT_ONCE = 10, 100


@cache
def _edits_after() -> Select[AuditLog]:
    return (
        select(AuditLog)
        .options(undefer(AuditLog.sealed_text))
        .where(
            AuditLog.agent_id == bindparam("agent_id"),
            AuditLog.action.in_(MUTATIONS),
            AuditLog.sequence > bindparam("sequence"),
        )
        .order_by(AuditLog.sequence)
    )


class LedgerReading:
    """The kept core memories of an agent, and the originals before them, read for comparing.

    Reading takes time, so a tool keeps one of these for all of its calls, and kept memories are
    read only until what is looked for is found. They are read again when the version of the ledger
    on the agent's locked row shows a change that was not followed: a trigger counts every change,
    whoever makes it.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        # what was read of the ledger in this version, and how far: date and id of the last memory
        self._kept: dict[int, Reading] = {}
        self._last: tuple[datetime, int] | None = None
        # whatever was read, by its text
        self._readings: dict[str, Reading] = {}
        self._originals: list[Original] = []
        # the memories of each session whose text before that session is known, or that it made
        self._known: set[tuple[uuid.UUID | None, int]] = set()
        self._last_sequence = 0

    def losses(
        self,
        session_id: uuid.UUID,
        agent: Agent,
        removed: Collection[AgentMemory],
        content: str | None,
        share: Decimal,
    ) -> list[Loss]:
        """Return what the ledger would no longer say without ``removed``, but with ``content``.

        ``content`` is the text of a merge or an update; None for a deletion.
        """
        self._read_changes(agent)
        gone = {memory.id: self._read(memory.content) for memory in removed}
        untouched = (
            Original(id_, reading)
            for id_, reading in sorted(gone.items())
            if (session_id, id_) not in self._known
        )
        remaining = Repeatable(self._remaining(agent, gone, content))
        return losses([*self._originals, *untouched], gone.values(), remaining, share=share)

    def texts_lost_by(
        self,
        agent: Agent,
        changes: Iterable[Change],
        later: Iterable[AuditLog],
        share: Decimal,
    ) -> set[tuple[int, int]]:
        """Return which texts would no longer be said once ``changes`` are made.

        Checks the texts that ``later`` edits removed or rewrote, relying on the ledger as it is
        now. Each is given by the sequence of its record and the id of its memory.
        """
        after = {change.memory_id: change.after for change in changes}
        kept = dict(self._each_kept(agent))
        removed = [reading for id_, reading in kept.items() if id_ in after]
        remaining = [reading for id_, reading in kept.items() if id_ not in after]
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

    def apply_edit(
        self,
        record: AuditLog,
        changes: Iterable[Change],
        memories: Collection[AgentMemory],
        *,
        since: int,
        version: int,
    ) -> None:
        """Take over an edit that was just written: its record, its memories as they are now.

        It took the ledger from version ``since`` to ``version``. If the ledger was not read in
        the former, the next edit reads it again. Forget this reading if the edit is not committed.
        """
        if self._version != since:
            return
        self._take_over(record, changes)
        for memory in memories:
            self._kept.pop(memory.id, None)
            if memory.is_kept_core:
                self._keep(memory)
        self._version = version

    # -- the ledger as it is ----------------------------------------------------------------------

    def _remaining(
        self, agent: Agent, gone: Collection[int], content: str | None
    ) -> Iterator[Reading]:
        if content is not None:
            yield self._read(content)
        for id_, reading in self._each_kept(agent):
            if id_ not in gone:
                yield reading

    def _each_kept(self, agent: Agent) -> Iterator[tuple[int, Reading]]:
        """Read the kept core memories one after another, first those that were read before.

        A row that was changed outside the application carries nothing.
        """
        yield from list(self._kept.items())
        while memories := self._fetch(agent):
            for memory in memories:
                self._last = memory.created_at, memory.id
                if memory.id not in self._kept and memory.is_genuine:
                    self._keep(memory)
                    yield memory.id, self._kept[memory.id]

    def _keep(self, memory: AgentMemory) -> None:
        self._kept[memory.id] = self._read(memory.content)

    def _fetch(self, agent: Agent) -> Sequence[AgentMemory]:
        """Return the next memories by date, in parts that grow: the first ones are often enough."""
        core = agent.ledger.core().limit(min(_FETCHED_FIRST + len(self._kept), _FETCHED_AT_ONCE))
        if self._last is not None:
            core = core.where(tuple_(AgentMemory.created_at, AgentMemory.id) > self._last)
        return db.session.scalars(core).all()

    def _read(self, text: str) -> Reading:
        if text not in self._readings:
            self._readings[text] = read(text)
        return self._readings[text]

    def _read_changes(self, agent: Agent) -> None:
        if self._version != agent.ledger_version:
            self._kept.clear()
            self._last = None
            self._read_originals(agent)
            self._version = agent.ledger_version

    # -- what it said before ----------------------------------------------------------------------

    def _read_originals(self, agent: Agent) -> None:
        """Read the texts that sessions changed since they were last read.

        For each session and memory the text before the session's first edit counts. What the
        session wrote itself does not, so that it can take back its own words.
        """
        key, known = agent.data_key(), {"agent_id": agent.id, "sequence": self._last_sequence}
        for record in db.session.scalars(_edits_after(), known):
            self._take_over(record, changes_in(record.data, record.sealed_under(key)))

    def _take_over(self, record: AuditLog, changes: Iterable[Change]) -> None:
        for change in changes:
            touched = (record.session_id, change.memory_id)
            if change.before is not None and touched not in self._known:
                reading = self._read(change.before["content"])
                self._originals.append(Original(change.memory_id, reading))
            self._known.add(touched)
        self._last_sequence = record.sequence
