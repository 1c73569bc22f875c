"""Which memories of a file an agent already has: by their id at the source, or by their content."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from refine.models import Agent
from refine.models.ledger import content_hash
from refine.sealing import DataKey
from refine.transfer.known import Candidate, Known
from refine.transfer.pieces import Piece


@dataclass
class Findings:
    """What is new in a batch, and how many memories are known by their id but have another text."""

    new: list[Candidate] = field(default_factory=list)
    conflicting: int = 0


@dataclass
class Recognizer:
    """Tells the new memories of an import from those that the agent has.

    A dry run stores nothing, so it ``remembers`` what was new in earlier batches.
    """

    _agent: Agent
    _source: str
    _remembers: bool
    _known: Known = field(default_factory=Known)

    def sort(self, batch: Iterable[Sequence[Piece]]) -> Findings:
        """Return which pieces of the batch are new; the pieces of a row stay together."""
        key = self._agent.data_key()
        rows = [self._candidates(pieces, key) for pieces in batch]
        if not self._remembers:
            self._known = Known()
        self._known.load(self._agent, list(chain.from_iterable(rows)))
        findings = Findings()
        for row in rows:
            self._sort_row(row, findings)
        return findings

    def _candidates(self, pieces: Sequence[Piece], key: DataKey) -> list[Candidate]:
        source = pieces[0].row.source or self._source
        row_id = pieces[0].row_id(key)
        return [
            Candidate(
                piece, source, row_id, piece.source_id(row_id), content_hash(piece.content, key)
            )
            for piece in pieces
        ]

    def _sort_row(self, row: Sequence[Candidate], into: Findings) -> None:
        if self._known.has_row(row):
            for candidate in row:
                known = self._known.hashes.get((candidate.source, candidate.source_id))
                into.conflicting += known != candidate.content_hash
        elif not self._known.has_content(row):
            into.new += row
            for candidate in row:
                self._known.add(candidate)
