"""Output of commands: figures, ids and names, never memory content."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from refine import clock

# Names are printed unchanged; callers that use markup for colours must escape them.
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

_ANY_WIDTH = 100_000

# What a command lists: for programs all fields of a row; for people those that have a heading.
Row = Mapping[str, Any]
Headings = Mapping[str, str]


@dataclass(frozen=True)
class Worded:
    """A value for programs that people read in other words."""

    value: Any
    words: str


def print_list(
    rows: Sequence[Row],
    headings: Headings,
    *,
    as_json: bool,
    empty: str,
    limit: int | None = None,
    more: str = "--limit lists more",
) -> None:
    """Print rows as one JSON array or as a table; ``empty`` for people if there are none.

    If there are more rows than ``limit``, the first ones are printed; ``more`` says on standard
    error how to get the others.
    """
    shown = rows[:limit]
    if as_json:
        click.echo(_as_json(list(shown)))
    else:
        cells = [[_cell(name, row[name]) for name in headings] for row in shown]
        table(list(headings.values()), cells, empty=empty)
    if len(shown) < len(rows):
        click.echo(f"refine: these are the first {limit}; {more}", err=True)


def print_one(row: Row, headings: Headings, *, as_json: bool) -> None:
    """Print one row as a JSON object, or each of its fields on a line."""
    if as_json:
        click.echo(_as_json(row))
        return
    width = max(map(len, headings.values()))
    for name, heading in headings.items():
        console.print(f"{heading:<{width}}  {_cell(name, row[name])}".rstrip())


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print rows under their columns, numbers right-aligned, or ``empty`` if there are none."""
    listed = [[("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not listed:
        console.print(empty)
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        is_number = all(row[position].lstrip("-").replace(",", "").isdigit() for row in listed)
        drawn.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    for row in listed:
        drawn.add_row(*row)
    # never truncated, even on a narrow terminal or without one
    drawn.width = console.measure(drawn, options=console.options.update(width=_ANY_WIDTH)).maximum
    console.print(drawn)


def _as_json(value: object) -> str:
    return json.dumps(value, indent=1, default=_plain)


def _plain(value: object) -> object:
    """Return a value that JSON lacks: times with their zone, amounts and ids as text."""
    if isinstance(value, Worded):
        return value.value if value.value is None else str(value.value)
    return clock.iso(value) if isinstance(value, datetime) else str(value)


def _cell(name: str, value: object) -> str:
    match value:
        case None:
            return ""
        case Worded():
            return value.words
        case bool():
            return "yes" if value else "no"
        case int() if not (name == "id" or name.endswith("_id")):
            return f"{value:,}"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}"
        case Decimal():
            return f"{value:f}"
    return str(value)
