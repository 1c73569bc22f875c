"""Output of commands: figures, ids and names, never memory content."""

import json
from collections.abc import Callable, Iterable, Sequence
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


@dataclass(frozen=True)
class Field:
    """A field of what a command lists: ``name`` for programs; for people a ``heading``, or none.

    ``of`` gives its value, which ``words`` says to people.
    """

    name: str
    of: Callable[[Any], Any]
    heading: str | None = None
    words: Callable[[Any], str] | None = None

    def cell(self, row: Any) -> str:
        """Return what people read."""
        if self.words is not None:
            return self.words(row)
        return _in_words(self.of(row), is_id=self.name == "id" or self.name.endswith("_id"))


def print_list(
    fields: Sequence[Field],
    rows: Sequence[Any],
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
        click.echo(json.dumps([_as_json(fields, row) for row in shown], indent=1, default=_plain))
    else:
        headed = [field for field in fields if field.heading is not None]
        cells = [[field.cell(row) for field in headed] for row in shown]
        table([field.heading or "" for field in headed], cells, empty=empty)
    if len(shown) < len(rows):
        click.echo(f"refine: these are the first {limit}; {more}", err=True)


def print_one(fields: Sequence[Field], row: Any, *, as_json: bool) -> None:
    """Print one row as a JSON object, or each of its fields on a line."""
    if as_json:
        click.echo(json.dumps(_as_json(fields, row), indent=1, default=_plain))
        return
    headed = [field for field in fields if field.heading is not None]
    width = max(len(field.heading or "") for field in headed)
    for field in headed:
        console.print(f"{field.heading:<{width}}  {field.cell(row)}".rstrip())


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


def _as_json(fields: Sequence[Field], row: Any) -> dict[str, Any]:
    return {field.name: field.of(row) for field in fields}


def _plain(value: object) -> object:
    """Return a value that JSON lacks: times with their zone, amounts and ids as text."""
    return clock.iso(value) if isinstance(value, datetime) else str(value)


def _in_words(value: object, *, is_id: bool) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int() if not is_id:
            return f"{value:,}"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}"
        case Decimal():
            return f"{value:f}"
    return str(value)
