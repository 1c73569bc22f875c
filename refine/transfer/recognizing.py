"""Which memories of a file an agent already has: by their id at the source, or by their content."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from sqlalchemy import select

from refine.extensions import columns_json, db
from refine.models import Agent, AgentMemory
from refine.models.columns import one_of_ids, one_of_names
from refine.models.ledger import content_hash
from refine.models.ledger.memory import CORE, NOTE
from refine.sealing import DataKey
from refine.transfer import own
from refine.transfer.exporting import origin_of
from refine.transfer.pieces import Piece
from refine.transfer.rows import Incoming, is_opaque

_ID_OF_PART = re.compile(r".*\.[0-9]+")


class Candidate(NamedTuple):
    """A piece, with what it is recognized by."""

    piece: Piece
    source: str
    row_id: str
    source_id: str
    content_hash: str


class _Protection(NamedTuple):
    constitutional: bool
    tags: frozenset[str]

    def covers(self, piece: Piece) -> bool:
        return self.constitutional >= piece.row.constitutional and self.tags.issuperset(piece.tags)


class Recognizer:
    """Tells the new memories of an import from those that the agent has.

    A dry run stores nothing, so it ``remembers`` what was new in earlier batches.
    """

    def __init__(self, agent: Agent, source: str, *, remembers: bool) -> None:
        self._agent = agent
        self._source = source
        self._remembers = remembers
        self._forget()

    def _forget(self) -> None:
        # content hashes by source and id there; what protects kept core memories, by content hash
        self._hashes: dict[tuple[str, str], str] = {}
        self._cores: dict[str, list[_Protection]] = {}

    def sort(self, batch: Iterable[Sequence[Piece]]) -> tuple[list[Candidate], int]:
        """Return which pieces are new, and how many are known by id but have another text.

        The pieces of a row stay together.
        """
        key = self._agent.data_key()
        rows = [self._candidates(pieces, key) for pieces in batch]
        if not self._remembers:
            self._forget()
        self._load(list(chain.from_iterable(rows)))
        new, conflicting = list[Candidate](), 0
        for row in rows:
            if self._has_row(row):
                conflicting += sum(
                    self._hashes.get((each.source, each.source_id)) != each.content_hash
                    for each in row
                )
            elif not self._has_content(row):
                new += row
                self._add(row)
        return new, conflicting

    def _candidates(self, pieces: Sequence[Piece], key: DataKey) -> list[Candidate]:
        row = pieces[0].row
        source, row_id = row.source or self._source, _row_id(row, key)
        return [
            Candidate(
                piece, source, row_id, piece.source_id(row_id), content_hash(piece.content, key)
            )
            for piece in pieces
        ]

    def _has_row(self, row: Sequence[Candidate]) -> bool:
        """Tell whether the row is known, even if it was split differently then."""
        source, row_id = row[0].source, row[0].row_id
        return (source, row_id) in self._hashes or (source, f"{row_id}.1") in self._hashes

    def _has_content(self, row: Sequence[Candidate]) -> bool:
        """Tell whether an unsplit core memory is kept with the same content."""
        first = row[0]
        same = self._cores.get(first.content_hash, ()) if first.piece.is_kept_core else ()
        return len(row) == 1 and any(protection.covers(first.piece) for protection in same)

    def _add(self, row: Sequence[Candidate]) -> None:
        for candidate in row:
            piece = candidate.piece
            self._hashes[candidate.source, candidate.source_id] = candidate.content_hash
            if piece.is_kept_core:
                protection = _Protection(piece.row.constitutional, frozenset(piece.tags))
                self._cores.setdefault(candidate.content_hash, []).append(protection)

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
                AgentMemory.source == one_of_names({candidate.source for candidate in candidates}),
                AgentMemory.source_id == one_of_names(ids),
                AgentMemory.source_id.is_not(None),
            )
        )
        self._hashes.update({(row[0] or "", row[1] or ""): row[2] for row in rows})

    def _load_own(self, candidates: Sequence[Candidate]) -> None:
        """Load which rows are the agent's own memories, in a full export that came back.

        The time has to match as well: after a restored backup, ids are given out again.
        """
        origin = origin_of(self._agent)
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
                AgentMemory.agent_id == self._agent.id, AgentMemory.id == one_of_ids(own_rows)
            )
        )
        for id_, created_at, hashed in rows:
            if created_at == own_rows[id_].piece.row.created_at:
                self._hashes[own_rows[id_].source, own_rows[id_].row_id] = hashed

    def _load_cores(self, candidates: Sequence[Candidate]) -> None:
        """Load the kept contents, but none that may be taken back."""
        # if SQL also compared the state, PostgreSQL would scan all core memories
        same = db.session.execute(
            select(
                AgentMemory.content_hash,
                AgentMemory.constitutional,
                AgentMemory.tags,
                AgentMemory.discarded,
                AgentMemory.could_be_undone(),
            ).where(
                AgentMemory.agent_id == self._agent.id,
                AgentMemory.memory_type == CORE,
                AgentMemory.content_hash
                == one_of_names({each.content_hash for each in candidates}),
            )
        )
        for hashed, constitutional, tags, is_discarded, may_go in same:
            if not (is_discarded or may_go):
                protection = _Protection(constitutional, frozenset(tags))
                self._cores.setdefault(hashed, []).append(protection)


def _row_id(row: Incoming, key: DataKey) -> str:
    """Return the row's id at the source; a hash of the row if there is none.

    Hashed if it could be words, or the id of a part, which only Refine's own exports name.
    """
    if row.source_id is None:
        at = row.created_at.isoformat() if row.created_at is not None else None
        return _hashed(key, row.within, row.content.strip(), at)
    could_be_a_part = row.source is None and _ID_OF_PART.fullmatch(row.source_id) is not None
    is_kept = is_opaque(row.source_id) and not could_be_a_part
    return row.source_id if is_kept else _hashed(key, row.source_id)


def _hashed(key: DataKey, *words: str | None) -> str:
    return key.mac(columns_json(words), "agent_memories.source_id")
