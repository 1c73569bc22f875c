"""CSV that spreadsheets open as it is meant: no cell of it is a formula."""

import csv
import io
from collections.abc import Iterable

# Spreadsheets read a cell that begins like this as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_line(values: Iterable[object]) -> str:
    """Return a line of CSV; a value that a spreadsheet would take for a formula is quoted."""
    line = io.StringIO()
    csv.writer(line).writerow(map(_cell, values))
    return line.getvalue()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
