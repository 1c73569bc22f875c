"""Which memories of a file an agent already has: by their id at the source, or by their content."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.ledger import content_hash, is_kept_core
from refine.transfer import own
from refine.transfer.pieces import Piece


@dataclass(frozen=True)
class Candidate:
    """A piece, with what it is recognized by; ``text_hash`` is that of ``piece.text``."""

    piece: Piece
    source: str
    row_id: str
    content_hash: str
    text_hash: str

    @property
    def source_id(self) -> str:
        return self.piece.source_id(self.row_id)


_Identity = tuple[str, str]  # source and source id


@dataclass(frozen=True)
class _Protection:
    constitutional: bool
    tags: frozenset[str]

    def covers(self, piece: Piece) -> bool:
        return self.constitutional >= piece.row.constitutional and self.tags.issuperset(piece.tags)


@dataclass
class _Known:
    """Content hashes by identity, and the protections of kept core memories by content hash."""

    hashes: dict[_Identity, str] = field(default_factory=dict)
    cores: dict[str, list[_Protection]] = field(default_factory=dict)

    def has_row(self, row: Sequence[Candidate]) -> bool:
        """Tell whether the row is known, even if it was split differently then."""
        source, row_id = row[0].source, row[0].row_id
        ids = (row_id, f"{row_id}.1")
        return any((source, each) in self.hashes for each in ids)

    def has_content(self, row: Sequence[Candidate]) -> bool:
        """Tell whether a core memory that stands in one piece is kept with the same content."""
        first = row[0]
        same = self.cores.get(first.content_hash, ()) if first.piece.is_kept_core else ()
        return len(row) == 1 and any(protection.covers(first.piece) for protection in same)

    def add(self, candidate: Candidate) -> None:
        piece = candidate.piece
        self.hashes[candidate.source, candidate.source_id] = candidate.content_hash
        if piece.is_kept_core:
            protection = _Protection(piece.row.constitutional, frozenset(piece.tags))
            self.cores.setdefault(candidate.content_hash, []).append(protection)


@dataclass
class Sorted:
    """What is new of a batch, and how many memories are known under their id with other texts."""

    new: list[Candidate] = field(default_factory=list)
    conflicting: int = 0
    without_prefix: int = 0  # imported before prefixes were added


@dataclass
class Recognizer:
    """Tells the new memories of an import from those that the agent has.

    A dry run stores nothing, so it ``remembers`` what was new in earlier batches.
    """

    _agent: Agent
    _source: str
    _remembers: bool
    _known: _Known = field(default_factory=_Known)

    def sort(self, batch: Iterable[Sequence[Piece]]) -> Sorted:
        """Return which pieces of the batch are new; the pieces of a row stay together."""
        rows = [self._candidates(pieces) for pieces in batch]
        if not self._remembers:
            self._known = _Known()
        self._load([candidate for row in rows for candidate in row])
        sorted_ = Sorted()
        for row in rows:
            self._sort_row(row, sorted_)
        return sorted_

    def _candidates(self, pieces: Sequence[Piece]) -> list[Candidate]:
        key = self._agent.data_key()
        source = pieces[0].row.source or self._source
        row_id = pieces[0].row_id(key)
        return [
            Candidate(
                piece,
                source,
                row_id,
                content_hash(piece.content, key),
                content_hash(piece.text, key),
            )
            for piece in pieces
        ]

    def _sort_row(self, row: Sequence[Candidate], into: Sorted) -> None:
        if self._known.has_row(row):
            for candidate in row:
                known = self._known.hashes.get((candidate.source, candidate.source_id))
                if known == candidate.content_hash:
                    continue
                into.conflicting += known != candidate.text_hash
                into.without_prefix += known == candidate.text_hash
        elif not self._known.has_content(row):
            into.new += row
            for candidate in row:
                self._known.add(candidate)

    # -- what is stored --------------------------------------------------------------------------

    def _load(self, candidates: Sequence[Candidate]) -> None:
        self._load_ids(candidates)
        self._load_own(candidates)
        self._load_cores(candidates)

    def _load_ids(self, candidates: Sequence[Candidate]) -> None:
        """Load which ids were imported before, including memories discarded since."""
        ids = {candidate.source_id for candidate in candidates}
        ids |= {id_ for each in candidates for id_ in (each.row_id, f"{each.row_id}.1")}
        rows = db.session.execute(
            select(AgentMemory.source, AgentMemory.source_id, AgentMemory.content_hash).where(
                AgentMemory.agent_id == self._agent.id,
                AgentMemory.source.in_({candidate.source for candidate in candidates}),
                AgentMemory.source_id.in_(ids),
                AgentMemory.source_id.is_not(None),
            )
        )
        for row in rows:
            self._known.hashes[row.source or "", row.source_id or ""] = row.content_hash

    def _load_own(self, candidates: Sequence[Candidate]) -> None:
        """Load which rows are the agent's own memories, in a full export that came back.

        The time has to match, too: after a restored backup, ids are given out again.
        """
        own_rows = {
            id_: candidate
            for candidate in candidates
            if candidate.source == own.SOURCE
            and (id_ := own.own_id(self._agent, candidate.piece.row.source_id)) is not None
        }
        rows = db.session.execute(
            select(AgentMemory.id, AgentMemory.created_at, AgentMemory.content_hash).where(
                AgentMemory.agent_id == self._agent.id, AgentMemory.id.in_(own_rows)
            )
        )
        for id_, created_at, hashed in rows:
            if created_at == own_rows[id_].piece.row.created_at:
                self._known.hashes[own.SOURCE, own_rows[id_].row_id] = hashed

    def _load_cores(self, candidates: Sequence[Candidate]) -> None:
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
        for hashed, constitutional, tags, memory_type, discarded_at in same:
            if is_kept_core(memory_type, discarded_at):
                protection = _Protection(constitutional, frozenset(tags))
                self._known.cores.setdefault(hashed, []).append(protection)
