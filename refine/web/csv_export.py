"""Files that are sent while their rows are read, and CSV without cells that are formulas."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from flask import Response, stream_with_context

# So many are read from the database at a time.
BATCH_ROWS = 500

# Where a spreadsheet would begin to read a formula: at a sign, in any width, behind blanks or
# quotes, if it begins the text or whatever may separate cells comes before it. Where few separate
# them, only the sign that always begins one is guarded: "tel:+49" is text.
_FORMULA = re.compile(
    r"""\A(?=[\t\r\n])|(?:\A|(?<=[,;|\t\r\n]))(?=(?:[^\S\t\r\n]|["'\ufeff])*[=+@＝＋－＠﹦﹢﹣﹫-])
    |(?<=[:^/；])(?=[=＝﹦])""",
    re.VERBOSE,
)


def attachment(lines: Iterator[str], filename: str, mimetype: str) -> Response:
    """Return a file that the browser saves; its lines are made while it is sent."""
    answer = Response(stream_with_context(lines), mimetype=mimetype)
    answer.headers["Content-Disposition"] = f"attachment; filename={filename}"
    return answer


def csv_line(values: Iterable[object]) -> str:
    """Return a line of CSV, quoted; an apostrophe precedes what could be a formula."""
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL).writerow(map(_cell, values))
    return line.getvalue()


def _cell(value: object) -> object:
    guarded = _guarded(value)
    if isinstance(guarded, dict):
        return json.dumps(guarded, ensure_ascii=False, sort_keys=True)
    return guarded


def _guarded(value: Any) -> Any:
    if isinstance(value, dict):
        return {_guarded(name): _guarded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_guarded(each) for each in value]
    return _FORMULA.sub("'", value) if isinstance(value, str) else value
