"""Lists: narrowed by filters of the URL, cut into pages, and shown by a phone as cards."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from flask import abort, request
from markupsafe import Markup, escape
from sqlalchemy import ColumnElement, Select, SQLColumnExpression

from refine.errors import InvalidValue
from refine.models.paging import OneOf, Page, select_page
from refine.web import scope
from refine.web.forms import day_of, midnight
from refine.web.words import day

PAGE_ROWS = 50
_MAX_SEARCHED_CHARACTERS = 100

_START = re.compile("<(tr|th|td)(?= |>)")


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
    input: Literal["hidden", "text", "search", "date", "select"] = "hidden"
    choices: "Callable[[Chosen], Mapping[str, Any]]" = lambda chosen: {}  # noqa: E731 - a default
    attributes: Mapping[str, object] = field(default_factory=dict)
    shown: Callable[[Any], str] = str
    recorded: Callable[[Any], dict[str, Any]] | None = None

    @property
    def is_hidden(self) -> bool:
        return self.input == "hidden"

    @property
    def is_choice(self) -> bool:
        return self.input == "select"


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

    def as_args(self) -> dict[str, str]:
        account = request.args.get("account", "")
        return {**self.texts, "account": account} if account else dict(self.texts)

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


def searched(*columns: SQLColumnExpression[str], label: str) -> Filter:
    return Filter(
        "q",
        label,
        read=lambda text: text[:_MAX_SEARCHED_CHARACTERS] or None,
        condition=lambda text: contains(text, *columns),
        input="search",
        shown=lambda text: f"“{text}”",
    )


def contains(text: str, *columns: SQLColumnExpression[str]) -> ColumnElement[bool]:
    first, *others = (column.icontains(text, autoescape=True) for column in columns)
    for other in others:
        first |= other
    return first


def one_of(name: str, label: str, words: Mapping[Any, str], **declared: Any) -> Filter:
    return Filter(
        name,
        label,
        read=lambda text: text if text in words else None,
        input="select",
        choices=lambda chosen: words,
        shown=lambda value: words[value],
        **declared,
    )


def of_agent(column: SQLColumnExpression[Any]) -> Filter:
    return Filter(
        "agent",
        "Agent",
        read=lambda text: scope.chosen_agent(text),
        condition=lambda agent: column == agent.id,
        shown=lambda agent: str(agent.name),
        recorded=lambda agent: {"agent_id": agent.id},
    )


def since(column: SQLColumnExpression[datetime], label: str) -> Filter:
    return Filter(
        "since",
        label,
        read=day_of,
        condition=lambda on: column >= midnight(on),
        input="date",
        shown=lambda on: f"{label.lower()} {day(on)}",
    )


def page_of(query: Select[Any], *, one_of: OneOf | None = None) -> Page:
    """Return the page that the URL asks for, or 400; the query needs a unique order."""
    bookmark = request.args.get("page") or None
    try:
        return select_page(query, PAGE_ROWS, bookmark, one_of=one_of)
    except InvalidValue:
        abort(400, "This page of the list does not exist; start from the first page.")


def as_cards(rows: Markup, columns: Sequence[str]) -> Markup:
    """Return rows whose cells have roles, which a table laid out otherwise loses."""
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
