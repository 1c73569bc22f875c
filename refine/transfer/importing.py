"""Adds the memories of a file to an agent, in batches.

Each batch is one transaction with one record (``memory_imported``). An import that is interrupted
between two batches leaves complete ones, and the same import resumes from there: a memory that was
imported once is recognized by its id at the source, or by its content.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Agent
from refine.models.ledger import NewMemory
from refine.transfer.exporting import origin_of
from refine.transfer.recognizing import Piece, Recognizer, pieces_of
from refine.transfer.report import Report
from refine.transfer.rows import BadRow, Incoming, Row

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
    importing = _Import(agent, source, memory_type, report, dry_run=dry_run)
    db.session.commit()  # no transaction is held open while rows are read
    if strict:
        importing.refuse_bad_rows(read())
    for batch in _batched(importing.good_rows(read())):
        importing.add(batch)
    return report


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


class _Import:
    def __init__(
        self, agent: Agent, source: str, memory_type: str, report: Report, *, dry_run: bool
    ) -> None:
        self._agent = agent
        self._source = source
        self._memory_type = memory_type
        self._report = report
        self._dry_run = dry_run
        self._key, self._origin = agent.data_key(), origin_of(agent)
        self._recognizer = Recognizer(agent, remembers=dry_run)

    def refuse_bad_rows(self, rows: Iterable[Row]) -> None:
        """Raise InvalidValue for the first bad row."""
        for row in rows:
            made = self._pieces(row) if isinstance(row, Incoming) else row
            if isinstance(made, BadRow):
                raise InvalidValue(f"nothing was imported: {made.place}: {made.reason}")

    def good_rows(self, rows: Iterable[Row]) -> Iterator[list[Piece]]:
        """Yield the pieces of each good row; note the other rows in the report."""
        for row in rows:
            made = self._pieces(self._unlocked(row)) if isinstance(row, Incoming) else row
            if isinstance(made, list):
                self._report.split_rows += len(made) > 1
                yield made
            else:
                self._report.note(made)

    def _unlocked(self, row: Incoming) -> Incoming:
        """Return the row, constitutional only if the agent itself exported it, with its origin."""
        if not row.constitutional or row.origin == self._origin:
            return row
        self._report.flags_left_out += 1
        return row._replace(constitutional=False)

    def _pieces(self, row: Incoming) -> list[Piece] | BadRow:
        try:
            return pieces_of(row, self._key, self._source, self._memory_type)
        except InvalidValue as error:
            return BadRow(row.place, str(error))

    def add(self, batch: Sequence[Sequence[Piece]]) -> None:
        """Write a batch, and commit; only count it in a dry run."""
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
        for piece in new:
            report.note_added(piece.memory_type, piece.content)

    def _write(self, new: Sequence[Piece], already_present: int) -> None:
        agent, at = self._agent, clock.now()
        memories = [
            NewMemory(
                content=piece.content,
                memory_type=piece.memory_type,
                tags=piece.tags,
                constitutional=piece.row.constitutional,
                created_at=piece.row.created_at or at,
                discarded_at=piece.row.discarded_at,
                source=piece.source,
                source_id=piece.source_id,
                extra=piece.extra,
            )
            for piece in new
        ]
        agent.ledger.add_all(
            "memory_imported",
            memories,
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
