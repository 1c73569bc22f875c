"""Adds the memories of a file, in batches of one transaction each; an import can be repeated."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import Agent
from refine.models.ledger.image import is_kept_core
from refine.models.ledger.ledger import ImportedMemory
from refine.models.ledger.memory import MEMORY_TYPES
from refine.rules.content import token_estimate
from refine.rules.quantities import plural
from refine.transfer import (
    chatgpt,
    claude,
    langgraph,
    letta,
    lorebook,
    markdown,
    mcp,
    mem0,
    own,
    plain,
    stores,
)
from refine.transfer.recognizing import Candidate, Recognizer, Status, candidate
from refine.transfer.rows import ALL, BadRow, Incoming, LeftOut, Row, Wanted
from refine.transfer.sources import Source, sources_of

BATCH_MEMORIES = 500

_NO_MEMORIES = "files that hold no memories"

# More bad rows than this are counted, but not listed; of a dry run so many memories are shown.
MAX_NAMED_BAD_ROWS, MAX_SHOWN = 20, 5
_SHOWN_CHARACTERS = 72


class Format(NamedTuple):
    """``recognizes`` may assume that the file is none of the formats before it."""

    read: Callable[[Source, Wanted], Iterator[Row]]
    recognizes: Callable[[Source], bool]
    files: str


# A new format is a module with these two, and a line here.
FORMATS = {
    "refine": Format(own.read, own.recognizes, "a full export of Refine"),
    "letta": Format(
        letta.read, letta.recognizes, "an agent file (.af), or passages from Letta's API"
    ),
    "chatgpt": Format(chatgpt.read, chatgpt.recognizes, "conversations.json of an export"),
    "claude": Format(claude.read, claude.recognizes, "memories.json of an export"),
    "langgraph": Format(langgraph.read, langgraph.recognizes, "items of a store, LangMem's too"),
    "stores": Format(stores.read, stores.recognizes, "memories of Anthropic's memory stores"),
    "mcp": Format(mcp.read, mcp.recognizes, "the memory server's file, or what read_graph answers"),
    "lorebook": Format(lorebook.read, lorebook.recognizes, "a lorebook, or a character card"),
    "mem0": Format(mem0.read, mem0.recognizes, "JSON from get_all, or Qdrant's points"),
    "csv": Format(plain.read_csv, plain.recognizes_csv, "a table; see --map"),
    "jsonl": Format(plain.read_json, plain.recognizes_json, "JSON objects; see --map"),
    "markdown": Format(markdown.read, markdown.recognizes, "notes, in one file or many"),
}


def format_of(source: Source) -> str | None:
    """Return the name of the first format that recognizes the file, by its shape."""
    return next((name for name, each in FORMATS.items() if each.recognizes(source)), None)


def rows_at(path: Path, format_: str | None = None, wanted: Wanted = ALL) -> Iterator[Row]:
    """Yield the rows of a file, or of the files of a folder or a zip."""
    with sources_of(path) as sources:
        yield from rows_of(sources, format_, wanted)


def rows_of(
    sources: Iterable[Source], format_: str | None = None, wanted: Wanted = ALL
) -> Iterator[Row]:
    """Yield the rows of files, from their beginning; a BadRow for one that cannot be read.

    ``format_`` overrules what each file is recognized as.
    """
    for source in sources:
        row: Row | None = None
        for row in _rows_of(source, format_, wanted):
            if source.is_alone or isinstance(row, LeftOut):
                yield row
            else:
                yield row._replace(place=f"{source.path}, {row.place}")
        if row is None:
            yield LeftOut(_NO_MEMORIES)


def _rows_of(source: Source, given: str | None, wanted: Wanted) -> Iterator[Row]:
    if source.is_hidden:
        yield LeftOut("hidden files")
        return
    try:
        format_ = given or format_of(source)
        if format_ is not None:
            for row in FORMATS[format_].read(source, wanted):
                yield _named(row, format_)
        elif source.is_alone:
            yield BadRow("file", "is in no format that is recognized: name it with --format")
        else:
            yield LeftOut(_NO_MEMORIES)
    except InvalidValue as error:
        yield BadRow("file", str(error))


def _named(row: Row, format_: str) -> Row:
    """A row is recognized later by where it is from, and its id there."""
    if isinstance(row, Incoming) and row.source is None:
        return row._replace(source=format_)
    return row


@dataclass
class Report:
    added: Counter[str] = field(default_factory=Counter)  # by memory type
    added_tokens: int = 0
    added_core_tokens: int = 0  # of kept memories
    already_present: int = 0
    conflicting: int = 0  # present with another text
    batches: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # by kind
    flags_left_out: int = 0  # constitutional in the export of another agent
    bad_rows: int = 0
    named_bad_rows: list[BadRow] = field(default_factory=list)
    first: list[ImportedMemory] = field(default_factory=list, compare=False)  # of those added

    @property
    def is_failure(self) -> bool:
        return bool(self.bad_rows) and not (self.added or self.already_present or self.left_out)

    def note(self, row: BadRow | LeftOut) -> None:
        if isinstance(row, LeftOut):
            self.left_out[row.kind] += 1
        else:
            self.bad_rows += 1
            if len(self.named_bad_rows) < MAX_NAMED_BAD_ROWS:
                self.named_bad_rows.append(row)

    def note_batch(self, new: Sequence[ImportedMemory], statuses: Sequence[Status]) -> None:
        self.already_present += len(statuses) - len(new)
        self.conflicting += statuses.count("conflicting")
        self.batches += bool(new)
        self.first += new[: MAX_SHOWN - len(self.first)]
        for memory in new:
            self.added[memory.memory_type] += 1
            tokens = token_estimate(memory.content)
            self.added_tokens += tokens
            if is_kept_core(memory.memory_type, memory.discarded_at):
                self.added_core_tokens += tokens

    def first_rows(self) -> Iterator[str]:
        """Yield the first memories as they would be kept, each in a line."""
        for memory in self.first:
            text = " ".join(memory.content.split())
            shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
            yield f"{memory.created_at:%Y-%m-%d} {memory.memory_type:<7} {shown}"

    def headline(self, verb: str) -> str:
        types = ", ".join(f"{self.added[type_]:,} {type_}" for type_ in MEMORY_TYPES)
        return f"{memory_count(self.added.total())} {verb}: {types}; {self.added_tokens:,} tokens"

    def rows(self) -> Iterator[tuple[str, str]]:
        if self.already_present:
            other = f", {self.conflicting:,} of them with a different text, not stored"
            yield "already here", f"{self.already_present:,}{other if self.conflicting else ''}"
        for kind, count in sorted(self.left_out.items()):
            yield "left out", f"{count:,}: {kind}"
        if self.flags_left_out:
            flags = plural(self.flags_left_out, "constitutional flag")
            yield "left out", f"{flags}; only an export of this agent itself can set them"
        if self.bad_rows:
            yield "bad rows", f"{self.bad_rows:,}"
            for bad in self.named_bad_rows:
                yield "", f"{bad.place}: {bad.reason}"
            if unnamed := self.bad_rows - len(self.named_bad_rows):
                yield "", f"and {unnamed:,} more"


def memory_count(count: int) -> str:
    return plural(count, "memory", "memories")


def import_memories(
    agent: Agent,
    read: Callable[[], Iterable[Row]],
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
    importing = _Import(agent, source, "command line", memory_type, dry_run)
    db.session.commit()  # no transaction is held open while rows are read
    if strict:
        importing.refuse_bad_rows(read())
    good = importing.good_rows(read(), report)
    while batch := list(islice(good, BATCH_MEMORIES)):
        new, statuses = importing.add(batch, report.batches + 1)
        db.session.commit()
        report.note_batch(new, statuses)  # only what is stored is reported
    return report


class Outcome(NamedTuple):
    status: Status | Literal["invalid"]
    detail: str | None = None


def import_page(agent: Agent, rows: Sequence[Incoming | BadRow], source: str) -> list[Outcome]:
    """Add what an agent brings itself, in the caller's transaction; say what became of each row."""
    importing = _Import(agent, source, "agent")
    made = [importing.candidate(row) if isinstance(row, Incoming) else row for row in rows]
    _, statuses = importing.add([each for each in made if isinstance(each, Candidate)], 1)
    rest = iter(statuses)
    return [
        Outcome("invalid", each.reason) if isinstance(each, BadRow) else Outcome(next(rest))
        for each in made
    ]


@dataclass
class _Import:
    agent: Agent
    source: str
    by: str
    memory_type: str = "core"
    dry_run: bool = False

    def __post_init__(self) -> None:
        self.key, self.origin = self.agent.data_key(), own.origin_of(self.agent)
        self.recognizer = Recognizer(self.agent, remembers=self.dry_run)

    def refuse_bad_rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            made = self.candidate(row) if isinstance(row, Incoming) else row
            if isinstance(made, BadRow):
                raise InvalidValue(f"nothing was imported: {made.place}: {made.reason}")

    def good_rows(self, rows: Iterable[Row], report: Report) -> Iterator[Candidate]:
        for row in rows:
            if isinstance(row, Incoming) and row.constitutional and row.origin != self.origin:
                report.flags_left_out += 1
                row = row._replace(constitutional=False)
            made = self.candidate(row) if isinstance(row, Incoming) else row
            if isinstance(made, Candidate):
                yield made
            else:
                report.note(made)

    def candidate(self, row: Incoming) -> Candidate | BadRow:
        try:
            return candidate(row, self.key, self.source, self.memory_type)
        except InvalidValue as error:
            return BadRow(row.place, str(error))

    def add(
        self, batch: Sequence[Candidate], number: int
    ) -> tuple[list[ImportedMemory], list[Status]]:
        """Add those that are new, and leave the commit to the caller."""
        if not self.dry_run:
            self.agent.lock()
        statuses = self.recognizer.sort(batch)
        pairs = zip(batch, statuses, strict=True)
        new = [each.memory for each, status in pairs if status == "added"]
        if new and not self.dry_run:
            counts = {"batch": number, "added": len(new), "already_here": len(batch) - len(new)}
            self.agent.ledger.add_all(
                "memory_imported",
                new,
                subject=self.agent,
                data={"source": self.source, "by": self.by, **counts},
                at=clock.now(),
            )
        return new, statuses
