"""Output of commands: figures, ids and names, never memory content."""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from refine import clock

# Names are printed unchanged; callers that use markup for colours must escape them.
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

_ANY_WIDTH = 100_000


class Field(NamedTuple):
    """A field of listed objects; people see it if it has a heading. ``value``: its attribute."""

    name: str
    heading: str | None = None
    value: str | Callable[[Any], Any] | None = None
    words: Callable[[Any], str] | None = None

    def of(self, item: Any) -> Any:
        value = self.value or self.name
        return attrgetter(value)(item) if isinstance(value, str) else value(item)

    def cell(self, item: Any) -> str:
        if self.words is not None:
            return self.words(item)
        match value := self.of(item):
            case None:
                return ""
            case bool():
                return "yes" if value else "no"
            case int() if not (self.name == "id" or self.name.endswith("_id")):
                return f"{value:,}"
            case datetime():
                return f"{value.astimezone(UTC):%Y-%m-%d %H:%MZ}"
            case Decimal():
                return f"{value:f}"
        return str(value)


def row_of(item: Any, fields: Iterable[Field]) -> dict[str, Any]:
    return {field.name: field.of(item) for field in fields}


def print_list(
    items: Sequence[Any],
    fields: Sequence[Field],
    *,
    as_json: bool,
    empty: str,
    limit: int | None = None,
) -> None:
    """Print the first ``limit`` objects as JSON or a table, and say so if there are more."""
    shown = items[:limit]
    if as_json:
        print_json([row_of(item, fields) for item in shown])
    else:
        headed = [field for field in fields if field.heading]
        cells = [[field.cell(item) for field in headed] for item in shown]
        table([str(field.heading) for field in headed], cells, empty=empty)
    if len(shown) < len(items):
        click.echo(f"refine: these are the first {limit}; --limit lists more", err=True)


def print_one(item: Any, fields: Sequence[Field]) -> None:
    headings = [field.heading or field.name.replace("_", " ") for field in fields]
    width = max(map(len, headings))
    for heading, field in zip(headings, fields, strict=True):
        console.print(f"{heading:<{width}}  {field.cell(item)}".rstrip())


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


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=1, default=_plain))


def _plain(value: object) -> object:
    return clock.iso(value) if isinstance(value, datetime) else str(value)
