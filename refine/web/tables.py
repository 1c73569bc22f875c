"""Tables, which a phone shows as cards."""

import re
from collections.abc import Sequence

from markupsafe import Markup, escape

_START = re.compile("<(tr|th|td)(?= |>)")


def as_cards(rows: Markup, columns: Sequence[str]) -> Markup:
    """Return the rows with what a card needs: each cell's role and the name of its column.

    The roles, because a table that is laid out as anything else loses them in some browsers.
    """
    names = [f'<td role="cell" data-label="{escape(column)}"' for column in columns]
    column = 0

    def start(tag: re.Match[str]) -> str:
        nonlocal column
        if tag[1] == "tr":
            column = 0
            return '<tr role="row"'
        column += 1
        return '<th role="rowheader"' if tag[1] == "th" else names[column - 1]

    return Markup(_START.sub(start, rows))  # noqa: S704 - markup already, and escaped names
