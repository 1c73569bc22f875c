"""What an agent already has, to recognize the rows of an import by."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import select

from refine.extensions import db
from refine.models import Agent, AgentMemory
from refine.models.columns import one_of_ids, one_of_names
from refine.models.ledger.kept import CORE
from refine.models.ledger.memory import NOTE
from refine.transfer import own
from refine.transfer.pieces import Piece


class Candidate(NamedTuple):
    """A piece, with what it is recognized by."""

    piece: Piece
    source: str
    row_id: str
    source_id: str
    content_hash: str


_Identity = tuple[str, str]  # source and source id


class _Protection(NamedTuple):
    constitutional: bool
    tags: frozenset[str]

    def covers(self, piece: Piece) -> bool:
        return self.constitutional >= piece.row.constitutional and self.tags.issuperset(piece.tags)


@dataclass
class Known:
    """Content hashes by identity, and the protections of kept core memories by content hash."""

    hashes: dict[_Identity, str] = field(default_factory=dict)
    cores: dict[str, list[_Protection]] = field(default_factory=dict)

    def has_row(self, row: Sequence[Candidate]) -> bool:
        """Tell whether the row is known, even if it was split differently then."""
        source, row_id = row[0].source, row[0].row_id
        return (source, row_id) in self.hashes or (source, f"{row_id}.1") in self.hashes

    def has_content(self, row: Sequence[Candidate]) -> bool:
        """Tell whether an unsplit core memory is kept with the same content."""
        first = row[0]
        same = self.cores.get(first.content_hash, ()) if first.piece.is_kept_core else ()
        return len(row) == 1 and any(protection.covers(first.piece) for protection in same)

    def add(self, candidate: Candidate) -> None:
        piece = candidate.piece
        self.hashes[candidate.source, candidate.source_id] = candidate.content_hash
        if piece.is_kept_core:
            protection = _Protection(piece.row.constitutional, frozenset(piece.tags))
            self.cores.setdefault(candidate.content_hash, []).append(protection)

    # -- what is stored --------------------------------------------------------------------------

    def load(self, agent: Agent, candidates: Sequence[Candidate]) -> None:
        """Add what the agent has of these."""
        self._load_ids(agent, candidates)
        self._load_own(agent, candidates)
        self._load_cores(agent, candidates)

    def _load_ids(self, agent: Agent, candidates: Sequence[Candidate]) -> None:
        """Load which ids were imported before, including memories discarded since."""
        ids = {candidate.source_id for candidate in candidates}
        ids |= {id_ for each in candidates for id_ in (each.row_id, f"{each.row_id}.1")}
        rows = db.session.execute(
            select(AgentMemory.source, AgentMemory.source_id, AgentMemory.content_hash).where(
                AgentMemory.agent_id == agent.id,
                AgentMemory.source == one_of_names({candidate.source for candidate in candidates}),
                AgentMemory.source_id == one_of_names(ids),
                AgentMemory.source_id.is_not(None),
            )
        )
        for row in rows:
            self.hashes[row.source or "", row.source_id or ""] = row.content_hash

    def _load_own(self, agent: Agent, candidates: Sequence[Candidate]) -> None:
        """Load which rows are the agent's own memories, in a full export that came back.

        The time has to match as well: after a restored backup, ids are given out again.
        """
        origin = own.origin_of(agent)
        own_rows = {
            id_: candidate
            for candidate in candidates
            if candidate.source in (own.SOURCE, NOTE)
            and (id_ := own.own_id(origin, candidate.piece.row.source_id)) is not None
        }
        if not own_rows:
            return
        rows = db.session.execute(
            select(AgentMemory.id, AgentMemory.created_at, AgentMemory.content_hash).where(
                AgentMemory.agent_id == agent.id, AgentMemory.id == one_of_ids(own_rows)
            )
        )
        for id_, created_at, hashed in rows:
            if created_at == own_rows[id_].piece.row.created_at:
                self.hashes[own_rows[id_].source, own_rows[id_].row_id] = hashed

    def _load_cores(self, agent: Agent, candidates: Sequence[Candidate]) -> None:
        """Load the kept contents, but none that may be taken back."""
        # if SQL also compared the state, PostgreSQL would scan all core memories
        hashes = {each.content_hash for each in candidates}
        same = db.session.execute(
            select(
                AgentMemory.content_hash,
                AgentMemory.constitutional,
                AgentMemory.tags,
                AgentMemory.discarded,
                AgentMemory.may_be_taken_back(),
            ).where(
                AgentMemory.agent_id == agent.id,
                AgentMemory.memory_type == CORE,
                AgentMemory.content_hash == one_of_names(hashes),
            )
        )
        for hashed, constitutional, tags, is_discarded, may_go in same:
            if not (is_discarded or may_go):
                protection = _Protection(constitutional, frozenset(tags))
                self.cores.setdefault(hashed, []).append(protection)
