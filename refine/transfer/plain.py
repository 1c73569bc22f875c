"""Memories of no program in particular: JSON objects with a text each, and tables (CSV)."""

import csv
from collections.abc import Iterator
from typing import Any

from refine.errors import InvalidValue
from refine.transfer.objects import LISTS, maker, object_rows
from refine.transfer.rows import BadRow, Row, Wanted, first_of
from refine.transfer.sources import Source

_TABLES = (".csv", ".tsv")
_LISTS = (*LISTS, "rows")


def recognizes_json(source: Source) -> bool:
    return bool(first_of(source.sample, *_LISTS))


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
    first = source.head(10_000).partition(b"\n")[0]
    delimiter = max(b",;\t", key=lambda each: first.count(bytes([each])))
    reader = csv.DictReader(lines, delimiter=chr(delimiter), restkey="others", strict=True)
    try:
        for row in reader:
            yield reader.line_num, {name.strip(): value for name, value in row.items() if name}
    except csv.Error:
        raise InvalidValue(f"is no table at line {reader.line_num}") from None
