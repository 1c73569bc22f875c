"""Lists: narrowed by filters of the URL, cut into pages, and shown by a phone as cards."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import cycle
from typing import Any, Literal
from uuid import UUID

from flask import abort, request
from markupsafe import Markup, escape
from sqlalchemy import ColumnElement, Label, Select, SQLColumnExpression, false, func, or_, select

from refine.errors import InvalidValue
from refine.models.paging import OneOf, Page, select_page
from refine.rules.quantities import plural
from refine.web import scope
from refine.web.forms import day_of
from refine.web.words import day, first_upper

PAGE_ROWS = 50
MOST_COUNTED = 1_000
_MAX_SEARCHED_CHARACTERS = 100

# Too many sessions begin alike with fewer digits.
_ID_BEGINS = re.compile("[0-9a-f]{4,32}")
_START = re.compile("<(tr|th|td)(?= |>)")
_ROW = re.compile("<tr>.*?</tr>", re.DOTALL)
_CELL = re.compile("<(th|td)[ >].*?</\\1>", re.DOTALL)
_TAG = re.compile("^<[^>]*>|<[^>]*>$")


@dataclass(frozen=True)
class Filter:
    """A filter of a list: how its text in the URL is read, and the condition on rows.

    ``read`` returns None to ignore the text. ``shown`` is the text of the chip, ``recorded`` the
    value in the record of an export; None: its text.
    """

    name: str
    label: str
    read: Callable[[str], Any]
    condition: Callable[[Any], ColumnElement[bool]]
    # neither: it has no field
    input: Literal["text", "search", "date"] | None = None
    choices: "Callable[[Chosen], Mapping[str, Any]] | None" = None
    attributes: Mapping[str, object] = field(default_factory=dict)
    shown: Callable[[Any], str] = str
    recorded: Callable[[Any], dict[str, Any]] | None = None


class Chosen:
    def __init__(self, filters: Sequence[Filter], args: Mapping[str, str] | None = None) -> None:
        given = request.args if args is None else args
        self.filters = filters
        self.texts: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        for each in filters:
            text = given.get(each.name, "").strip()
            if (value := each.read(text)) is not None:
                self.texts[each.name], self.values[each.name] = text, value

    def __bool__(self) -> bool:
        return bool(self.values)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def conditions(self, *, without: Sequence[str] = ()) -> list[ColumnElement[bool]]:
        return [
            each.condition(self.values[each.name])
            for each in self.filters
            if each.name in self.values and each.name not in without
        ]

    def as_data(self) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for each in self.filters:
            if (value := self[each.name]) is not None:
                kept |= each.recorded(value) if each.recorded else {each.name: str(value)}
        return kept

    @property
    def chips(self) -> dict[str, str]:
        active = (each for each in self.filters if each.name in self.values)
        return {each.name: each.shown(self[each.name]) for each in active}

    def title(self, noun: str, first: str = "") -> str:
        """Say what is listed, the filter ``first`` before the noun: "Failed sessions · Wren"."""
        told = self.chips
        if first in told:
            noun = first_upper(f"{told.pop(first)} {noun.lower()}")
        account = scope.chosen_account() if scope.user().site_admin else None
        return " · ".join([noun, *told.values(), *([account.name] if account else [])])


def searched(
    *columns: SQLColumnExpression[Any],
    label: str,
    also: Callable[[str], ColumnElement[bool]] = lambda text: false(),
) -> Filter:
    return Filter(
        "q",
        label,
        read=lambda text: text[:_MAX_SEARCHED_CHARACTERS] or None,
        condition=lambda text: contains(text, *columns) | also(text),
        input="search",
        shown=lambda text: f"“{text}”",
    )


def contains(text: str, *columns: SQLColumnExpression[Any]) -> ColumnElement[bool]:
    return or_(false(), *(column.icontains(text, autoescape=True) for column in columns))


def id_begins(column: SQLColumnExpression[UUID], text: str) -> ColumnElement[bool]:
    """Match ids that begin so, which an index finds."""
    digits = text.replace("-", "").lower()
    if _ID_BEGINS.fullmatch(digits) is None:
        return false()
    return column.between(UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f")))


def one_of(
    name: str, label: str, words: Mapping[Any, str], is_it: Callable[[Any], ColumnElement[bool]]
) -> Filter:
    return Filter(
        name,
        label,
        read=lambda text: text if text in words else None,
        condition=is_it,
        choices=lambda chosen: words,
        shown=lambda value: words[value],
    )


def of_agent(column: SQLColumnExpression[Any]) -> Filter:
    return Filter(
        "agent",
        "Agent",
        read=scope.chosen_agent,
        condition=lambda agent: column == agent.id,
        shown=lambda agent: str(agent.name),
        recorded=lambda agent: {"agent_id": agent.id},
    )


def by_day(name: str, label: str, condition: Callable[[date], ColumnElement[bool]]) -> Filter:
    return Filter(
        name,
        label,
        read=day_of,
        condition=condition,
        input="date",
        shown=lambda on: f"{label.lower()} {day(on)}",
    )


def page_of(query: Select[Any], *, one_of: OneOf | None = None, is_counted: bool = False) -> Page:
    """Return the page that the URL asks for, or 400; the query needs a unique order. Its rows say
    how many are ``matching``, up to one more than ``MOST_COUNTED``.
    """
    bookmark = request.args.get("page") or None
    if is_counted:
        query = query.add_columns(_count(query))
    try:
        return select_page(query, PAGE_ROWS, bookmark, one_of=one_of)
    except InvalidValue:
        abort(400, "This page of the list does not exist; start from the first page.")


def matching(page: Page, noun: str) -> str:
    """Say how many there are on all pages together, if they were counted."""
    number = getattr(page.rows[0], "matching", None)
    if number is None:
        return first_upper(f"{noun}s")
    return f"{MOST_COUNTED:,}+ {noun}s" if number > MOST_COUNTED else plural(number, noun)


def _count(query: Select[Any]) -> Label[int]:
    found = query.order_by(None).limit(MOST_COUNTED + 1).subquery()
    return select(func.count()).select_from(found).scalar_subquery().label("matching")


def said_once(
    rows: Markup, columns: Sequence[str], candidates: Sequence[str]
) -> tuple[Markup, dict[str, Markup]]:
    """Take out the columns whose cells are all alike, and return what these say."""
    found = _ROW.findall(rows) if candidates else []
    if len(found) < 2:  # noqa: PLR2004 - one row is like itself
        return rows, {}
    cells = [[_TAG.sub("", cell[0]) for cell in _CELL.finditer(row)] for row in found]
    alike = {
        name: Markup(column[0].strip())  # noqa: S704 - markup already
        for name, column in zip(columns, zip(*cells, strict=True), strict=True)
        if name in candidates and len(set(column)) == 1
    }
    column = cycle(columns)
    kept = _CELL.sub(lambda cell: "" if next(column) in alike else cell[0], rows)
    return Markup(kept), alike  # noqa: S704 - markup already


def as_cards(rows: Markup, columns: Sequence[str], wide: Sequence[str] = ()) -> Markup:
    """Return rows whose cells have roles, which a table laid out otherwise loses; cells of ``wide``
    columns are marked, for screens that have room.
    """
    names = [
        f'<td role="cell" data-label="{escape(column)}"' + (" data-wide" if column in wide else "")
        for column in columns
    ]
    column = 0

    def start(tag: re.Match[str]) -> str:
        nonlocal column
        if tag[1] == "tr":
            column = 0
            return '<tr role="row"'
        column += 1
        return '<th role="rowheader"' if tag[1] == "th" else names[column - 1]

    return Markup(_START.sub(start, rows))  # noqa: S704 - markup already, and escaped names
