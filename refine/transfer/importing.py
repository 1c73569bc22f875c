"""Adds the memories of a file to an agent, in batches.

Each batch is one transaction with one record (``memory_imported``). An import that is interrupted
between two batches leaves complete ones, and the same import resumes from there: a memory that was
imported once is recognized by its id at the source, or by its content.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from refine import clock
from refine.extensions import db
from refine.models import Agent
from refine.models.ledger.bulk import NewMemory, add_memories
from refine.transfer.exporting import origin_of
from refine.transfer.pieces import Piece, good_rows, refuse_bad_rows
from refine.transfer.recognizing import Candidate, Recognizer
from refine.transfer.report import Report
from refine.transfer.rows import Incoming, Row

BATCH_MEMORIES = 500
BATCH_CHARACTERS = 1_000_000

Read = Callable[[], Iterable[Row]]


def import_memories(
    agent: Agent,
    read: Read,
    *,
    source: str,
    memory_type: str = "core",
    strict: bool = False,
    dry_run: bool = False,
    report: Report | None = None,
) -> Report:
    """Add the rows to the agent's memories; commit each batch and return what happened to the rows.

    ``read`` is called for each pass. ``memory_type`` is for rows without one. ``strict`` raises
    InvalidValue for the first bad row, before anything is written. ``dry_run`` counts and writes
    nothing. A ``report`` that is passed in stays current, also if the import is interrupted.
    """
    report = report if report is not None else Report()
    origin = origin_of(agent)
    db.session.commit()  # no transaction is held open while rows are read
    if strict:
        refuse_bad_rows(read(), memory_type)
    writer = _BatchWriter(agent, source, report, dry_run=dry_run)
    rows = _locking_only_its_own(read(), origin, report)
    for batch in _batched(good_rows(rows, memory_type, report)):
        writer.add(batch)
    return report


def _locking_only_its_own(rows: Iterable[Row], origin: str, report: Report) -> Iterator[Row]:
    """Yield the rows, constitutional only where the agent itself exported them: with its origin."""
    for row in rows:
        if isinstance(row, Incoming) and row.constitutional and row.origin != origin:
            report.flags_left_out += 1
            yield row._replace(constitutional=False)
        else:
            yield row


def _batched(rows: Iterable[list[Piece]]) -> Iterator[list[list[Piece]]]:
    """Yield rows in batches; the pieces of one row stay together."""
    batch: list[list[Piece]] = []
    memories = characters = 0
    for pieces in rows:
        batch.append(pieces)
        memories += len(pieces)
        characters += sum(len(piece.content) for piece in pieces)
        if memories >= BATCH_MEMORIES or characters >= BATCH_CHARACTERS:
            yield batch
            batch, memories, characters = [], 0, 0
    if batch:
        yield batch


class _BatchWriter:
    """Writes batch after batch into an agent's memories, or only counts in a dry run."""

    def __init__(self, agent: Agent, source: str, report: Report, *, dry_run: bool) -> None:
        self._agent = agent
        self._source = source
        self._report = report
        self._dry_run = dry_run
        self._recognizer = Recognizer(agent, source, remembers=dry_run)

    def add(self, batch: Sequence[Sequence[Piece]]) -> None:
        if not self._dry_run:
            self._agent.lock()
        new, conflicting = self._recognizer.sort(batch)
        already_present = sum(map(len, batch)) - len(new)
        if new and not self._dry_run:
            self._write(new, already_present)
        db.session.commit()
        # after the commit, so that only what is stored is reported
        report = self._report
        report.already_present += already_present
        report.conflicting += conflicting
        report.batches += bool(new)
        for candidate in new:
            report.note_added(candidate.piece.memory_type, candidate.piece.content)

    def _write(self, new: Sequence[Candidate], already_present: int) -> None:
        agent, at = self._agent, clock.now()
        add_memories(
            "memory_imported",
            [_new_memory(candidate, at) for candidate in new],
            agent=agent,
            subject=("Agent", agent.id),
            data={
                "source": self._source,
                "batch": self._report.batches + 1,
                "added": len(new),
                "already_here": already_present,
                "by": "command line",
            },
            at=at,
        )


def _new_memory(candidate: Candidate, at: datetime) -> NewMemory:
    piece = candidate.piece
    return NewMemory(
        content=piece.content,
        memory_type=piece.memory_type,
        tags=piece.tags,
        constitutional=piece.row.constitutional,
        created_at=piece.row.created_at or at,
        discarded_at=piece.row.discarded_at,
        source=candidate.source,
        source_id=candidate.source_id,
        extra=piece.extra_fields(candidate.row_id),
    )
