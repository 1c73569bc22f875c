"""Rows as the memories that they become: validated, and split where they are too long."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from refine.errors import InvalidValue
from refine.models.ledger import MEMORY_TYPES, is_kept_core
from refine.rules.content import MAX_CONTENT_CHARACTERS, known_tags, memory_content
from refine.rules.splitting import split
from refine.transfer.report import Report
from refine.transfer.rows import BadRow, Incoming, LeftOut, OnePage, Row, extra_json


class Piece(NamedTuple):
    """A memory to be stored: all of a row, or one part of a row that was split."""

    row: Incoming
    content: str
    memory_type: str
    tags: list[str]
    part: int = 1
    parts: int = 1

    @property
    def is_kept_core(self) -> bool:
        return is_kept_core(self.memory_type, self.row.discarded_at)

    def source_id(self, row_id: str) -> str:
        return row_id if self.parts == 1 else f"{row_id}.{self.part}"

    def extra_fields(self, row_id: str) -> str | None:
        """Return the row's other fields as JSON; a part adds its number and the id of the whole."""
        if self.parts == 1:
            return self.row.extra
        link = {"part": self.part, "parts": self.parts, "part_of": row_id}
        return extra_json({**_fields(self.row.extra), **link})


def refuse_bad_rows(rows: Iterable[Row], memory_type: str) -> None:
    """Raise InvalidValue for the first bad row."""
    for row in rows:
        made = _pieces(row, memory_type) if isinstance(row, Incoming) else row
        if isinstance(made, BadRow):
            raise InvalidValue(f"nothing was imported: {made.place}: {made.reason}")


def good_rows(rows: Iterable[Row], memory_type: str, report: Report) -> Iterator[list[Piece]]:
    """Yield the pieces of each good row; note the other rows in the report."""
    for row in rows:
        made = _pieces(row, memory_type) if isinstance(row, Incoming) else row
        match made:
            case LeftOut():
                report.left_out[made.kind] += 1
            case OnePage():
                report.one_page = made
            case BadRow():
                report.note_bad(made)
            case _:
                report.split_rows += len(made) > 1
                yield made


def _pieces(row: Incoming, default_type: str) -> list[Piece] | BadRow:
    memory_type = default_type if row.memory_type is None else row.memory_type
    if memory_type not in MEMORY_TYPES:
        return BadRow(row.place, f"memory_type must be one of {', '.join(MEMORY_TYPES)}")
    try:
        tags = known_tags(row.tags)
        parts = split(row.content, MAX_CONTENT_CHARACTERS - len(row.prefix))
        contents = [memory_content(part and row.prefix + part) for part in parts or [""]]
    except InvalidValue as error:
        return BadRow(row.place, str(error))
    return [
        Piece(row, content, memory_type, tags, number, len(contents))
        for number, content in enumerate(contents, 1)
    ]


def _fields(extra: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(extra or "{}")
    except (ValueError, RecursionError):
        fields = None
    return fields if isinstance(fields, dict) else {"extra": extra}
