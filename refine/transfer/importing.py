"""Adds the memories of a file to an agent, in batches.

Each batch is one transaction with one record (``memory_imported``). An import that is interrupted
between two batches leaves complete ones, and the same import resumes from there: a memory that was
imported once is recognized by its id at the source, or by its content.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import func, select

from refine import clock
from refine.errors import Refused
from refine.extensions import db
from refine.models import Agent, AgentMemory, User
from refine.models.ledger import change_memories, content_hash, is_kept_core
from refine.models.ledger.history import count_changes
from refine.models.ledger.image import Change
from refine.transfer.pieces import Piece, good_rows, refuse_bad_rows
from refine.transfer.report import Report, memory_count
from refine.transfer.rows import Row

BATCH_MEMORIES = 500
BATCH_CHARACTERS = 1_000_000

Read = Callable[[], Iterable[Row]]


def check(read: Read, *, memory_type: str = "core") -> Report:
    """Return how many rows could be imported, without comparing them with an agent's memories."""
    report = Report()
    for pieces in good_rows(read(), memory_type, report):
        for piece in pieces:
            report.note_added(piece.memory_type, piece.content)
    return report


def import_memories(
    agent: Agent,
    read: Read,
    *,
    source: str,
    memory_type: str = "core",
    strict: bool = False,
    dry_run: bool = False,
    user: User | None = None,
    report: Report | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Report:
    """Add the rows to the agent's memories; commit each batch and return what happened to the rows.

    ``read`` is called for each pass. ``memory_type`` is for rows without one. ``strict`` raises
    InvalidValue for the first bad row, before anything is written. ``dry_run`` counts and writes
    nothing. A ``report`` that is passed in stays current, also if the import is interrupted.

    A ``user`` of the dashboard may fill only an agent that never had a memory, because what is
    "already present" would tell them whether they guessed one: Refused otherwise, also in the
    middle of the import if the agent begins to keep its own. At the end the agent gets a journal
    memory.
    """
    report = report if report is not None else Report()
    db.session.commit()  # no transaction is held open while rows are read
    if strict:
        refuse_bad_rows(read(), memory_type)
    writer = _BatchWriter(agent, source, user, report, dry_run)
    for batch in _batched(good_rows(read(), memory_type, report)):
        writer.add(batch)
        progress()
    if user is not None and report.added and not dry_run:
        agent.ledger.add_journal_note(
            f"{user.email} imported {memory_count(report.added.total())} into my memory, from a "
            f"file in {source} format."
        )
        db.session.commit()
    return report


def _batched(rows: Iterable[list[Piece]]) -> Iterator[list[Piece]]:
    """Yield pieces in batches; the pieces of one row stay together."""
    batch: list[Piece] = []
    characters = 0
    for pieces in rows:
        batch += pieces
        characters += sum(len(piece.content) for piece in pieces)
        if len(batch) >= BATCH_MEMORIES or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


@dataclass(frozen=True)
class _Candidate:
    piece: Piece
    source: str
    source_id: str
    content_hash: str

    @property
    def identity(self) -> tuple[str, str]:
        return self.source, self.source_id


@dataclass(frozen=True)
class _Protection:
    constitutional: bool
    tags: frozenset[str]

    def covers(self, piece: Piece) -> bool:
        return self.constitutional >= piece.row.constitutional and self.tags.issuperset(piece.tags)


_HashByIdentity = dict[tuple[str, str], str]
_ProtectionsByHash = dict[str, list[_Protection]]


@dataclass
class _BatchWriter:
    """Writes batch after batch into an agent's memories, or only counts in a dry run."""

    _agent: Agent
    _source: str
    _user: User | None
    _report: Report
    _dry_run: bool
    _counted_ids: _HashByIdentity = field(default_factory=dict)
    _counted_cores: _ProtectionsByHash = field(default_factory=dict)

    def add(self, batch: Sequence[Piece]) -> None:
        if self._dry_run:
            new, conflicting = self._new_in(batch, self._counted_ids, self._counted_cores)
        else:
            self._agent.lock()
            if self._user is not None:
                self._require_empty_agent()
            new, conflicting = self._new_in(batch, {}, {})
            if new:
                self._write(new, len(batch) - len(new))
        db.session.commit()
        # after the commit, so that only what is stored is reported
        self._report.already_present += len(batch) - len(new)
        self._report.conflicting += conflicting
        self._report.batches += bool(new)
        for candidate in new:
            self._report.note_added(candidate.piece.memory_type, candidate.piece.content)

    def _require_empty_agent(self) -> None:
        # a memory that was written in Python has no record, one that was moved away has no row
        rows = select(func.count()).where(AgentMemory.agent_id == self._agent.id)
        others = (db.session.scalar(rows) or 0) > self._report.added.total()
        if others or count_changes(self._agent.id) > self._report.batches:
            raise Refused(
                f"{self._agent.name} already has memories. You can import only into an agent "
                "without memories; to add to existing ones, run `refine import` on the server"
            )

    def _new_in(
        self,
        batch: Sequence[Piece],
        counted_ids: _HashByIdentity,
        counted_cores: _ProtectionsByHash,
    ) -> tuple[list[_Candidate], int]:
        """Return the batch's new memories, and the number of known ids with another text.

        ``counted_ids`` and ``counted_cores`` hold what earlier pieces added, and grow.
        """
        key = self._agent.data_key()
        hashes = [content_hash(piece.content, key) for piece in batch]
        candidates = [
            _Candidate(piece, piece.row.source or self._source, piece.source_id(key), hashed)
            for piece, hashed in zip(batch, hashes, strict=True)
        ]
        stored_ids = self._stored_ids(candidates)
        stored_cores = self._stored_cores(candidates)
        new, conflicting = [], 0
        for candidate in candidates:
            piece, hashed = candidate.piece, candidate.content_hash
            known_hash = stored_ids.get(candidate.identity) or counted_ids.get(candidate.identity)
            same_content = [*stored_cores.get(hashed, ()), *counted_cores.get(hashed, ())]
            is_covered = any(protection.covers(piece) for protection in same_content)
            is_duplicate = piece.parts == 1 and piece.is_kept_core and is_covered
            if known_hash is not None or is_duplicate:
                conflicting += known_hash is not None and known_hash != hashed
                continue
            counted_ids[candidate.identity] = hashed
            if piece.is_kept_core:
                protection = _Protection(piece.row.constitutional, frozenset(piece.tags))
                counted_cores.setdefault(hashed, []).append(protection)
            new.append(candidate)
        return new, conflicting

    def _stored_ids(self, candidates: Sequence[_Candidate]) -> _HashByIdentity:
        """Return which ids were imported before, including memories discarded since."""
        rows = db.session.execute(
            select(AgentMemory.source, AgentMemory.source_id, AgentMemory.content_hash).where(
                AgentMemory.agent_id == self._agent.id,
                AgentMemory.source.in_({candidate.source for candidate in candidates}),
                AgentMemory.source_id.in_({candidate.source_id for candidate in candidates}),
                AgentMemory.source_id.is_not(None),
            )
        )
        return {(row.source or "", row.source_id or ""): row.content_hash for row in rows}

    def _stored_cores(self, candidates: Sequence[_Candidate]) -> _ProtectionsByHash:
        # filtered by hash alone: with type and state in SQL, PostgreSQL scans all core memories
        same = db.session.execute(
            select(
                AgentMemory.content_hash,
                AgentMemory.constitutional,
                AgentMemory.tags,
                AgentMemory.memory_type,
                AgentMemory.discarded_at,
            ).where(
                AgentMemory.agent_id == self._agent.id,
                AgentMemory.content_hash.in_({each.content_hash for each in candidates}),
            )
        )
        cores: _ProtectionsByHash = {}
        for hashed, constitutional, tags, memory_type, discarded_at in same:
            if is_kept_core(memory_type, discarded_at):
                cores.setdefault(hashed, []).append(_Protection(constitutional, frozenset(tags)))
        return cores

    def _write(self, new: Sequence[_Candidate], already_present: int) -> None:
        agent, at = self._agent, clock.now()
        ids = AgentMemory.next_ids(len(new))
        added = [
            AgentMemory(
                id=id_,
                agent=agent,
                content=candidate.piece.content,
                memory_type=candidate.piece.memory_type,
                tags=candidate.piece.tags,
                constitutional=candidate.piece.row.constitutional,
                created_at=candidate.piece.row.created_at or at,
                recorded_at=at,
                updated_at=at,
                discarded_at=candidate.piece.row.discarded_at,
                source=candidate.source,
                source_id=candidate.source_id,
                extra=candidate.piece.extra_fields(candidate.source_id),
            )
            for id_, candidate in zip(ids, new, strict=True)
        ]
        db.session.add_all(added)
        db.session.flush()
        change_memories(
            "memory_imported",
            [Change(memory.id, None, memory.image()) for memory in added],
            agent=agent,
            user=self._user,
            subject=("Agent", agent.id),
            data={
                "source": self._source,
                "batch": self._report.batches + 1,
                "added": len(new),
                "already_here": already_present,
                "by": "user" if self._user is not None else "command line",
            },
            at=at,
        )
