"""What happened to the rows of an import, in figures."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from refine.models.ledger import MEMORY_TYPES
from refine.rules.quantities import plural
from refine.rules.tokens import token_estimate
from refine.transfer.rows import BadRow, LeftOut, OnePage

# More bad rows than this are counted, but not listed.
MAX_NAMED_BAD_ROWS = 20

_REACTIVATE = "; to import them, make them active there and export them again"

# Each kind of row that is left out: for one, for several, and what to do.
LEFT_OUT = {
    "blank": ("blank", "blank", ""),
    "relation": ("relation", "relations", " between entities; only observations are imported"),
    "other block": ("block", "blocks", " that the agent in the file does not have"),
    "deleted": ("deleted", "deleted", " at the source"),
    "archived": ("archived", "archived", f" at the source{_REACTIVATE}"),
    "paused": ("paused", "paused", f" at the source{_REACTIVATE}"),
    "replaced": ("replaced", "replaced", " by newer memories at the source"),
    "expired": ("expired", "expired", " at the source"),
}


@dataclass
class Report:
    """Figures of an import; bad rows by place and reason."""

    added: Counter[str] = field(default_factory=Counter)  # by memory type
    added_tokens: int = 0
    already_present: int = 0
    conflicting: int = 0  # of the present ones, those that have another text here
    split_rows: int = 0
    batches: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # by kind, see LEFT_OUT
    flags_left_out: int = 0  # constitutional in the export of another agent
    one_page: OnePage | None = None
    bad_rows: int = 0
    named_bad_rows: list[BadRow] = field(default_factory=list)

    @property
    def is_failure(self) -> bool:
        """Whether no row at all could be read, though there were some."""
        return bool(self.bad_rows) and not (self.added or self.already_present or self.left_out)

    @property
    def unnamed_bad_rows(self) -> int:
        return self.bad_rows - len(self.named_bad_rows)

    def headline(self, verb: str) -> str:
        types = ", ".join(f"{self.added[type_]:,} {type_}" for type_ in MEMORY_TYPES)
        return f"{memory_count(self.added.total())} {verb}: {types}; {self.added_tokens:,} tokens"

    def rows(self) -> Iterator[tuple[str, str]]:
        if self.split_rows:
            yield "split", f"{self.split_rows:,} too long for one memory, stored as linked parts"
        if self.already_present:
            other = f", {self.conflicting:,} of them with a different text, not stored"
            yield "already here", f"{self.already_present:,}{other if self.conflicting else ''}"
        for kind, count in sorted(self.left_out.items()):
            one, several, rest = LEFT_OUT[kind]
            yield "left out", f"{plural(count, one, several)}{rest}"
        if self.flags_left_out:
            flags = plural(self.flags_left_out, "constitutional flag")
            yield "left out", f"{flags}; only an export of this agent itself can set them"
        if self.bad_rows:
            yield "bad rows", f"{self.bad_rows:,}"
        if self.one_page is not None:
            total = "" if self.one_page.total is None else f" of {self.one_page.total:,}"
            held = f"the file is one page, with {self.one_page.rows:,}{total} rows"
            yield "more pages", f"{held}; join the rows of all pages in one file, and import that"

    def note_added(self, memory_type: str, content: str) -> None:
        self.added[memory_type] += 1
        self.added_tokens += token_estimate(content)

    def note(self, row: BadRow | LeftOut | OnePage) -> None:
        """Note a row that is not imported."""
        if isinstance(row, LeftOut):
            self.left_out[row.kind] += 1
        elif isinstance(row, OnePage):
            self.one_page = row
        else:
            self.bad_rows += 1
            if len(self.named_bad_rows) < MAX_NAMED_BAD_ROWS:
                self.named_bad_rows.append(row)


def memory_count(count: int) -> str:
    return plural(count, "memory", "memories")
