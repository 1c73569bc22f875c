"""Memories of no program in particular: JSON objects with a text each, and tables (CSV)."""

import csv
from collections.abc import Iterator
from itertools import chain
from typing import Any

from refine.errors import InvalidValue
from refine.transfer.objects import LISTS, TEXTS, maker, object_rows
from refine.transfer.rows import BadRow, Row, Wanted, first_of, first_text
from refine.transfer.sources import Source

_JSON = (".json", ".jsonl", ".ndjson", ".af")
_TABLES = (".csv", ".tsv")
_LISTS = (*LISTS, "rows", "facts", "entries", "records")


def recognizes_json(source: Source) -> bool:
    """Of many files, those alone are read that have a text under a usual name, or are damaged."""
    first, suffix = first_of(source.sample, *_LISTS), source.path.suffix.lower()
    is_damaged = source.sample is None and suffix in _JSON
    return is_damaged or bool(first and (source.is_alone or first_text(first, *TEXTS) is not None))


def read_json(source: Source, wanted: Wanted) -> Iterator[Row]:
    """Yield the memories of JSON Lines, of a list, or of lists in an object."""
    yield from object_rows(source, wanted, *_LISTS)


def recognizes_csv(source: Source) -> bool:
    return source.path.suffix.lower() in _TABLES


def read_csv(source: Source, wanted: Wanted) -> Iterator[Row]:
    """Yield the memories of a table, whose first line names the columns."""
    make = maker(wanted, (row for _, row in _table(source)))
    for number, row in _table(source):
        place = f"line {number}"
        try:
            yield from make(place, row)
        except InvalidValue as error:
            yield BadRow(place, str(error))


def _table(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = (f"{line}\n" for _, line in source.text_lines())
    first = next(filter(str.strip, lines), "")
    if first.lower().startswith("sep="):  # Excel's
        first = next(lines, "")
    delimiter, lines_ = max(",;\t|", key=first.count), chain([first], lines)
    reader = csv.DictReader(lines_, delimiter=delimiter, restkey="others", strict=True)
    try:
        for row in reader:
            yield reader.line_num, {name.strip(): value for name, value in row.items() if name}
    except csv.Error:
        raise InvalidValue(f"is no table at line {reader.line_num}") from None
