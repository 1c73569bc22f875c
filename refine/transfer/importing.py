"""Memories that move in: validated, split, told apart from those that are here, and recorded.

Written in batches, each one transaction with one record (``memory_imported``). Whatever ends an
import between two batches leaves whole ones with their records, and the same import goes on from
there: a memory that came once is known by its id, or its content, where it came from.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from refine import clock
from refine.errors import InvalidValue, Refused
from refine.extensions import canonical_json, db
from refine.models import Agent, AgentMemory, User
from refine.models.ledger import MEMORY_TYPES, change_memories, content_hash
from refine.models.ledger.image import Change
from refine.rules.content import known_tags, memory_content
from refine.rules.splitting import split
from refine.rules.tokens import token_estimate
from refine.sealing import DataKey
from refine.transfer.rows import BadRow, Incoming, LeftOut, Row, is_opaque

BATCH_MEMORIES = 500
BATCH_CHARACTERS = 1_000_000

# What a report names one by one; of the rest it knows the number.
MAX_NAMED_BAD_ROWS = 20

Read = Callable[[], Iterable[Row]]


@dataclass
class Report:
    """What became of the rows, in figures; bad rows by place and reason."""

    added: Counter[str] = field(default_factory=Counter)
    added_tokens: int = 0
    already_here: int = 0
    otherwise_here: int = 0  # of these, under the same id with another text
    split_rows: int = 0
    batches: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    bad_rows: int = 0
    named_bad_rows: list[BadRow] = field(default_factory=list)

    @property
    def is_failure(self) -> bool:
        """Whether there was something to read, and nothing of it could be read."""
        return bool(self.bad_rows) and not (self.added or self.already_here or self.left_out)

    @property
    def unnamed_bad_rows(self) -> int:
        """How many bad rows there are beyond those that are named."""
        return self.bad_rows - len(self.named_bad_rows)

    def headline(self, did: str) -> str:
        """Say in one line what was added; ``did`` is what happened to it."""
        types = ", ".join(f"{self.added[type_]:,} {type_}" for type_ in MEMORY_TYPES)
        return f"{memories(self.added.total())} {did}: {types}; {self.added_tokens:,} tokens"

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield what became of the other rows, each with how many there were."""
        if self.split_rows:
            yield "split", f"{self.split_rows:,} too long for one memory, the parts tied together"
        if self.already_here:
            yield "already here", f"{self.already_here:,}{self._otherwise()}"
        for kind, count in sorted(self.left_out.items()):
            yield "left out", f"{count:,} {kind}"
        if self.bad_rows:
            yield "bad rows", f"{self.bad_rows:,}"

    def _otherwise(self) -> str:
        if not self.otherwise_here:
            return ""
        return f", {self.otherwise_here:,} of them with another text, left as they are"

    def note_added(self, memory_type: str, content: str) -> None:
        """Count a memory that was added, or would be."""
        self.added[memory_type] += 1
        self.added_tokens += token_estimate(content)

    def note_bad(self, bad: BadRow) -> None:
        """Count a bad row, and name it if there is room."""
        self.bad_rows += 1
        if len(self.named_bad_rows) < MAX_NAMED_BAD_ROWS:
            self.named_bad_rows.append(bad)


def memories(count: int) -> str:
    """Return so many memories in words."""
    return f"{count:,} {'memory' if count == 1 else 'memories'}"


def check(read: Read, *, memory_type: str = "core") -> Report:
    """Return what could be added of the rows of ``read``.

    No agent is looked at: whoever may not know what is in a memory learns nothing of it here.
    """
    report = Report()
    for pieces in _good_rows(read(), memory_type, report):
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
    """Add the rows of ``read`` to the agent's memories; return what became of them.

    Commits each batch. ``read`` is called anew for each pass over the rows. ``strict``: everything
    is read first, and the first bad row raises Refused before anything is written. ``dry_run``
    counts and writes nothing; it remembers ids of what it would have written. ``memory_type`` is
    for rows that do not say it themselves. ``report`` is kept current: whoever passes one has the
    figures even where the import is broken off.

    A ``user`` learns which memories were here already: each batch of theirs is recorded, also one
    that added nothing, and the agent is told what was added by a journal memory at the end.
    """
    report = report if report is not None else Report()
    db.session.commit()  # no transaction is held open while rows are read
    if strict:
        _refuse_bad_rows(read(), memory_type)
    batches = _Batches(agent, source, user, report, dry_run=dry_run)
    for batch in _batched(_good_rows(read(), memory_type, report)):
        batches.take_in(batch)
        progress()
    if user is not None and report.added and not dry_run:
        _tell(agent, user, report, source)
    return report


def _tell(agent: Agent, user: User, report: Report, source: str) -> None:
    brought = memories(report.added.total())
    agent.ledger.add_journal_note(
        f"{user.email} brought {brought} into my memory, from a file of the format {source}."
    )
    db.session.commit()


@dataclass(frozen=True)
class _Piece:
    """A memory as it can be stored: all of a row, or a part of one that was split."""

    row: Incoming
    content: str
    memory_type: str
    tags: list[str]
    part: int = 1
    parts: int = 1


def _refuse_bad_rows(rows: Iterable[Row], memory_type: str) -> None:
    for row in rows:
        if not isinstance(row, LeftOut) and isinstance(bad := _valid(row, memory_type), BadRow):
            raise Refused(f"nothing was imported: {bad.place}: {bad.reason}")


def _good_rows(rows: Iterable[Row], memory_type: str, report: Report) -> Iterator[list[_Piece]]:
    """Yield what each good row becomes; the report gets the others."""
    for row in rows:
        if isinstance(row, LeftOut):
            report.left_out[row.kind] += 1
        elif isinstance(pieces := _valid(row, memory_type), BadRow):
            report.note_bad(pieces)
        else:
            report.split_rows += len(pieces) > 1
            yield pieces


def _valid(row: Incoming | BadRow, memory_type: str) -> list[_Piece] | BadRow:
    """Return the memories that a row becomes, as the model accepts them; or why it does not."""
    if isinstance(row, BadRow):
        return row
    chosen = memory_type if row.memory_type is None else row.memory_type
    if chosen not in MEMORY_TYPES:
        return BadRow(row.place, f"memory_type must be one of {', '.join(MEMORY_TYPES)}")
    try:
        tags = known_tags(row.tags)
        contents = [memory_content(part) for part in split(row.content) or [""]]
    except InvalidValue as error:
        return BadRow(row.place, str(error))
    return [
        _Piece(row, content, chosen, tags, number, len(contents))
        for number, content in enumerate(contents, 1)
    ]


def _batched(rows: Iterable[list[_Piece]]) -> Iterator[list[_Piece]]:
    """Yield pieces by the batch; those of one row stay together."""
    batch: list[_Piece] = []
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
class _New:
    """A piece that is not here yet, and by what it will be known."""

    piece: _Piece
    source: str
    source_id: str


# By where it came from and its id there, the hash of what it says.
_Known = dict[tuple[str, str], str]
# By its hash, whether a content stands here with the flag, and with which tags.
_Kept = dict[str, list[tuple[bool, frozenset[str]]]]


class _Batches:
    """Writes batch after batch into one agent's memories, or only counts what it would write."""

    def __init__(
        self, agent: Agent, source: str, user: User | None, report: Report, *, dry_run: bool
    ) -> None:
        self._agent = agent
        self._source = source
        self._user = user
        self._report = report
        self._dry_run = dry_run
        self._would_be_known: _Known = {}
        self._would_be_kept: _Kept = {}

    def take_in(self, batch: Sequence[_Piece]) -> None:
        """Add what is not here yet, with one record, and commit."""
        if self._dry_run:
            new, otherwise = self._new_among(batch, self._would_be_known, self._would_be_kept)
        else:
            self._agent.lock()
            new, otherwise = self._new_among(batch, {}, {})
            if new or self._user is not None:
                self._write(new, len(batch) - len(new))
        db.session.commit()
        # only now: what is reported is there
        self._report.already_here += len(batch) - len(new)
        self._report.otherwise_here += otherwise
        self._report.batches += bool(new) or self._user is not None
        for one in new:
            self._report.note_added(one.piece.memory_type, one.piece.content)

    def _new_among(
        self, batch: Sequence[_Piece], known: _Known, kept: _Kept
    ) -> tuple[list[_New], int]:
        """Return what of a batch is new to the agent, and to ``known`` and ``kept``, which grow.

        And of how many of the others the id is known, but the text is another.
        """
        key = self._agent.data_key()
        named = [_New(one, one.row.source or self._source, _source_id(one, key)) for one in batch]
        hashes = [content_hash(one.content, key) for one in batch]
        here = self._known_here(named)
        kept_here = self._kept_here(hashes)
        new, otherwise = [], 0
        for one, hashed in zip(named, hashes, strict=True):
            name = (one.source, one.source_id)
            is_duplicate = one.piece.parts == 1 and any(
                _covers(memory, one.piece)
                for memory in (*kept_here.get(hashed, ()), *kept.get(hashed, ()))
            )
            same_id = here.get(name) or known.get(name)
            if same_id is not None or is_duplicate:
                otherwise += same_id is not None and same_id != hashed
                continue
            known[name] = hashed
            if _is_kept_core(one.piece):
                standing = (one.piece.row.constitutional, frozenset(one.piece.tags))
                kept.setdefault(hashed, []).append(standing)
            new.append(one)
        return new, otherwise

    def _known_here(self, named: Sequence[_New]) -> _Known:
        """Return which of these came before; also where the agent has tidied them away since."""
        rows = db.session.execute(
            select(AgentMemory.source, AgentMemory.source_id, AgentMemory.content_hash).where(
                AgentMemory.agent_id == self._agent.id,
                AgentMemory.source.in_({one.source for one in named}),
                AgentMemory.source_id.in_({one.source_id for one in named}),
                AgentMemory.source_id.is_not(None),
            )
        )
        return {(row.source or "", row.source_id or ""): row.content_hash for row in rows}

    def _kept_here(self, hashes: Sequence[str]) -> _Kept:
        # by the hash alone: asked for kept core ones, PostgreSQL reads them all, in each batch
        same = db.session.execute(
            select(
                AgentMemory.content_hash,
                AgentMemory.constitutional,
                AgentMemory.tags,
                AgentMemory.memory_type,
                AgentMemory.discarded_at,
            ).where(
                AgentMemory.agent_id == self._agent.id, AgentMemory.content_hash.in_(set(hashes))
            )
        )
        kept: _Kept = {}
        for hashed, constitutional, tags, memory_type, discarded_at in same:
            if memory_type == "core" and discarded_at is None:
                kept.setdefault(hashed, []).append((constitutional, frozenset(tags)))
        return kept

    def _write(self, new: Sequence[_New], already_here: int) -> None:
        agent, at = self._agent, clock.now()
        ids = AgentMemory.next_ids(len(new))
        added = [
            AgentMemory(
                id=id_,
                agent=agent,
                content=one.piece.content,
                memory_type=one.piece.memory_type,
                tags=one.piece.tags,
                constitutional=one.piece.row.constitutional,
                created_at=one.piece.row.created_at or at,
                recorded_at=at,
                updated_at=at,
                discarded_at=one.piece.row.discarded_at,
                source=one.source,
                source_id=one.source_id,
                extra=_extra(one),
            )
            for id_, one in zip(ids, new, strict=True)
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
                "already_here": already_here,
                "by": "user" if self._user is not None else "command line",
            },
            at=at,
        )


def _source_id(piece: _Piece, key: DataKey) -> str:
    """Return by what a piece is known: its id, if that says nothing; else a keyed hash."""
    row = piece.row
    if row.source_id is not None:
        id_ = row.source_id if is_opaque(row.source_id) else _hashed(key, row.source_id)
    else:
        at = row.created_at.isoformat() if row.created_at is not None else None
        id_ = _hashed(key, row.within, row.content.strip(), at)
    return id_ if piece.parts == 1 else f"{id_}.{piece.part}"


def _hashed(key: DataKey, *words: str | None) -> str:
    return key.mac(canonical_json(words), "agent_memories.source_id")


def _extra(new: _New) -> str | None:
    """Return the row's other fields; those of a part also say of what it is which part."""
    extra, piece = new.piece.row.extra, new.piece
    if piece.parts == 1:
        return extra
    whole = new.source_id.removesuffix(f".{piece.part}")
    part = {"part": piece.part, "parts": piece.parts, "part_of": whole}
    return json.dumps({**_fields(extra), **part}, ensure_ascii=False, sort_keys=True)


def _fields(extra: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(extra or "{}")
    except (ValueError, RecursionError):
        fields = None
    return fields if isinstance(fields, dict) else {"extra": extra}


def _is_kept_core(piece: _Piece) -> bool:
    return piece.memory_type == "core" and piece.row.discarded_at is None


def _covers(memory: tuple[bool, frozenset[str]], piece: _Piece) -> bool:
    """Tell whether a kept core memory of the same content makes this one superfluous.

    Not where this one is locked, or tagged, and the other is not.
    """
    constitutional, tags = memory
    return (
        _is_kept_core(piece)
        and constitutional >= piece.row.constitutional
        and tags.issuperset(piece.tags)
    )
