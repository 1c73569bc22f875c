"""What happened to the rows of an import, in figures."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from refine.models.ledger import MEMORY_TYPES
from refine.rules.quantities import plural
from refine.rules.tokens import token_estimate
from refine.transfer.rows import BadRow

# More bad rows than this are counted, but not listed.
MAX_NAMED_BAD_ROWS = 20


@dataclass
class Report:
    """Figures of an import; bad rows by place and reason."""

    added: Counter[str] = field(default_factory=Counter)  # by memory type
    added_tokens: int = 0
    already_present: int = 0
    conflicting: int = 0  # of the present ones, those that have another text here
    split_rows: int = 0
    batches: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
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
            conflicts = f", {self.conflicting:,} of them with a different text, not stored"
            yield "already here", f"{self.already_present:,}{conflicts if self.conflicting else ''}"
        for kind, count in sorted(self.left_out.items()):
            yield "left out", f"{count:,} {kind}"
        if self.bad_rows:
            yield "bad rows", f"{self.bad_rows:,}"

    def note_added(self, memory_type: str, content: str) -> None:
        self.added[memory_type] += 1
        self.added_tokens += token_estimate(content)

    def note_bad(self, bad: BadRow) -> None:
        self.bad_rows += 1
        if len(self.named_bad_rows) < MAX_NAMED_BAD_ROWS:
            self.named_bad_rows.append(bad)


def memory_count(count: int) -> str:
    return plural(count, "memory", "memories")
