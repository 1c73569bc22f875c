"""What an agent's memories say, and said before its sessions changed them.

Sessions may merge, rewrite and delete only what the ledger continues to say (``rules.survival``).
Edits are compared with the texts of the snapshot and, so that nothing is lost in small steps, with
every text that the agent's sessions removed or rewrote before.
"""

import uuid
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from functools import cache
from typing import Any, Protocol

from sqlalchemy import Select, bindparam, select, tuple_
from sqlalchemy.orm import undefer

from refine.extensions import db
from refine.extensions.statements import Plain
from refine.models.audit import AuditLog
from refine.models.audit.linking import StoredRecord
from refine.models.ledger import Change, changes_in, is_kept
from refine.models.ledger.kept import kept_core
from refine.models.ledger.stored import COLUMNS, MEMORIES, StoredMemory
from refine.models.runs.session.breaker import MUTATIONS
from refine.rules.details import Reading, read
from refine.rules.survival import Loss, Original, Repeatable, losses
from refine.sealing import DataKey

# How many memories are fetched at first, and at most: the first ones are often enough.
_FETCHED_FIRST, _FETCHED_AT_ONCE = 10, 100
_PLACES = {column.name: place for place, column in enumerate(COLUMNS)}
_place = tuple_(MEMORIES.c.created_at, MEMORIES.c.id)
_fetch = (
    select(*COLUMNS)
    .where(
        MEMORIES.c.agent_id == bindparam("agent_id"),
        kept_core(MEMORIES.c.memory_type, MEMORIES.c.discarded_at),
    )
    .order_by(MEMORIES.c.created_at, MEMORIES.c.id)
    .limit(bindparam("at_most"))
)
_FETCH = Plain(_fetch)
_FETCH_NEXT = Plain(_fetch.where(_place > tuple_(bindparam("created_at"), bindparam("id"))))


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


class LedgerHolder(Protocol):
    """The agent, as far as its ledger is read."""

    @property
    def id(self) -> int: ...
    @property
    def ledger_version(self) -> int: ...
    def data_key(self) -> DataKey: ...


class LedgerReading:
    """The kept core memories of an agent, and the originals before them, read for comparing.

    Reading takes time, so a tool keeps one of these for all of its calls, and kept memories are
    read only until what is looked for is found. They are read again when the version of the ledger
    on the agent's locked row shows a change that was not followed: a trigger counts every change,
    whoever makes it.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        # what was read of the ledger in this version, the memories to be read next, and how far
        # these were fetched
        self._kept: dict[int, Reading] = {}
        self._fetched: deque[tuple[Any, ...]] = deque()
        # what may have been edited since it was fetched
        self._edited: set[int] = set()
        self._last: tuple[Any, ...] | None = None
        # whatever was read, by its text
        self._readings: dict[str, Reading] = {}
        self._originals: list[Original] = []
        # the memories of each session whose text before that session is known, or that it made
        self._known: set[tuple[uuid.UUID | None, int]] = set()
        self._last_sequence = 0

    def losses(
        self,
        session_id: uuid.UUID,
        agent: LedgerHolder,
        removed: Collection[StoredMemory],
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

    def unsaid_texts(
        self,
        agent: LedgerHolder,
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

    def follow(
        self,
        record: StoredRecord,
        changes: Iterable[Change],
        memories: Collection[StoredMemory],
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
        self._edited |= {memory.id for memory in memories}
        for memory in memories:
            self._kept.pop(memory.id, None)
            if memory.is_kept_core:
                self._keep(memory)
        self._version = version

    # -- the ledger as it is ----------------------------------------------------------------------

    def _remaining(
        self, agent: LedgerHolder, gone: Collection[int], content: str | None
    ) -> Iterator[Reading]:
        if content is not None:
            yield self._read(content)
        for id_, reading in self._each_kept(agent):
            if id_ not in gone:
                yield reading

    def _each_kept(self, agent: LedgerHolder) -> Iterator[tuple[int, Reading]]:
        """Read the kept core memories one after another, first those that were read before.

        A row that was changed outside the application carries nothing.
        """
        yield from list(self._kept.items())
        key = agent.data_key()
        while self._fetched or self._fetch(agent):
            memory = StoredMemory.of(self._fetched.popleft(), key)
            if memory.id not in self._edited and memory.is_genuine_under(key):
                self._keep(memory)
                yield memory.id, self._kept[memory.id]

    def _keep(self, memory: StoredMemory) -> None:
        self._kept[memory.id] = self._read(memory.content)

    def _fetch(self, agent: LedgerHolder) -> bool:
        """Fetch the next memories by date; tell whether there were any."""
        at_most = min(_FETCHED_FIRST + len(self._kept), _FETCHED_AT_ONCE)
        query, after = _FETCH, {"agent_id": agent.id, "at_most": at_most}
        if self._last is not None:
            query = _FETCH_NEXT
            after |= {name: self._last[_PLACES[name]] for name in ("created_at", "id")}
        self._fetched.extend(query.execute(after))
        self._last = self._fetched[-1] if self._fetched else self._last
        return bool(self._fetched)

    def _read(self, text: str) -> Reading:
        if text not in self._readings:
            self._readings[text] = read(text)
        return self._readings[text]

    def _read_changes(self, agent: LedgerHolder) -> None:
        if self._version != agent.ledger_version:
            self._kept.clear()
            self._fetched.clear()
            self._edited.clear()
            self._last = None
            self._read_originals(agent)
            self._version = agent.ledger_version

    # -- what it said before ----------------------------------------------------------------------

    def _read_originals(self, agent: LedgerHolder) -> None:
        """Read the texts that sessions changed since they were last read.

        For each session and memory the text before the session's first edit counts. What the
        session wrote itself does not, so that it can take back its own words.
        """
        key, known = agent.data_key(), {"agent_id": agent.id, "sequence": self._last_sequence}
        for record in db.session.scalars(_edits_after(), known):
            self._take_over(record, changes_in(record.data, record.sealed_under(key)))

    def _take_over(self, record: AuditLog | StoredRecord, changes: Iterable[Change]) -> None:
        for change in changes:
            touched = (record.session_id, change.memory_id)
            if change.before is not None and touched not in self._known:
                reading = self._read(change.before["content"])
                self._originals.append(Original(change.memory_id, reading))
            self._known.add(touched)
        self._last_sequence = record.sequence
