"""What commands print. Figures, ids and names; never memory content."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

# What people named is printed as it stands; who wants colours asks for markup, and escapes names.
console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

LONGEST_LIST = 50

_ANY_WIDTH = 100_000


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print rows under their columns, or ``empty`` where there are none; numbers to the right."""
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
    # nothing is cut, however narrow the terminal, or where there is none
    drawn.width = console.measure(drawn, options=console.options.update(width=_ANY_WIDTH)).maximum
    console.print(drawn)
