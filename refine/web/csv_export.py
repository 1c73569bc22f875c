"""Files that are sent while their rows are read, and CSV without cells that are formulas."""

import csv
import io
from collections.abc import Iterable, Iterator

from flask import Response, stream_with_context

# So many are read from the database at a time.
BATCH_ROWS = 500

# Spreadsheets read a cell that begins like this as a formula; some also take full-width characters.
_FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")


def attachment(lines: Iterator[str], filename: str, mimetype: str) -> Response:
    """Return a file that the browser saves; its lines are made while it is sent."""
    answer = Response(stream_with_context(lines), mimetype=mimetype)
    answer.headers["Content-Disposition"] = f"attachment; filename={filename}"
    return answer


def csv_line(values: Iterable[object]) -> str:
    """Return a line of CSV; a value that a spreadsheet would take for a formula is quoted."""
    line = io.StringIO()
    csv.writer(line).writerow(map(_cell, values))
    return line.getvalue()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
