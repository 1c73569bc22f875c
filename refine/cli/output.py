"""Output of commands: figures, ids and names, never memory content."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

# Names are printed unchanged; whoever uses markup for colours must escape them.
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

LONGEST_LIST = 50

_ANY_WIDTH = 100_000


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print rows under their columns, numbers right-aligned, or ``empty`` if there are none."""
    listed = [[("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not listed:
        console.print(empty)
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        is_number = all(row[position].replace(",", "").isdigit() for row in listed)
        drawn.add_column(column, justify="right" if is_number else "left", no_wrap=True)
    for row in listed:
        drawn.add_row(*row)
    # never truncated, even on a narrow terminal or without one
    drawn.width = console.measure(drawn, options=console.options.update(width=_ANY_WIDTH)).maximum
    console.print(drawn)
