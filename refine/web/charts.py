"""The geometry of plots: figures in, percentages out; the templates draw them as SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

# The days that lists of what happened lately look back over.
DAYS_SHOWN = 30
# More points than this cannot be told apart on a screen.
_MAX_POINTS = 300

# From the bottom of a bar to its top: the worst on top, where it is noticed.
OUTCOMES = (
    "completed",
    "incomplete",
    "running",
    "queued",
    "skipped",
    "declined",
    "rolled_back",
    "failed",
)
# The only part of a bar that stacks nothing.
AMOUNT = "amount"

Amounts = int | Decimal


class Moment(NamedTuple):
    """The token mass of an agent's ledger at an instant; ``mark`` names an event worth marking."""

    at: datetime
    tokens: int
    mark: str | None = None
    session_id: object = None


@dataclass(frozen=True)
class Plot:
    """A step line in a square of 100 by 100: its path, the budget's height, marks, and labels."""

    path: str
    budget_y: float
    marks: list[tuple[float, float, Moment]]
    top_tokens: int
    since: datetime
    until: datetime

    @property
    def marks_below(self) -> list[tuple[float, float, Moment]]:
        """The marks that the line is drawn over: saves are many, and matter less."""
        return [mark for mark in self.marks if mark[2].mark == "save"]

    @property
    def marks_above(self) -> list[tuple[float, float, Moment]]:
        """The marks that are drawn over the line."""
        return [mark for mark in self.marks if mark[2].mark != "save"]


def step_plot(moments: Sequence[Moment], budget: int, until: datetime) -> Plot | None:
    if not moments:
        return None
    since = min(moments[0].at, until - timedelta(days=1))
    top = _round_up(max(budget, *(moment.tokens for moment in moments)))

    span = until - since

    def y(tokens: int) -> float:
        return round(100 - 100 * tokens / top, 3)

    drawn = [
        (round(100 * ((each.at - since) / span), 3), y(each.tokens), each)
        for each in _thinned(moments)
    ]
    steps = [f"M0 {drawn[0][1]}", *(f"H{x}V{height}" for x, height, _ in drawn[1:]), "H100"]
    marks = [point for point in drawn if point[2].mark is not None]
    return Plot("".join(steps), y(budget), marks, top, since, until)


class Part(NamedTuple):
    """A part of a bar: what it stands for, its place, and the amount that it shows."""

    name: str
    y: float
    height: float
    amount: Amounts


@dataclass(frozen=True)
class Bar:
    """One day's bar: its place, and its parts."""

    day: date
    x: float
    width: float
    parts: list[Part]

    @property
    def amount(self) -> Amounts:
        return sum(part.amount for part in self.parts)


def day_bars(days: Mapping[date, Mapping[str, Amounts]], until: date, number: int) -> list[Bar]:
    """Return stacked bars for the ``number`` days up to ``until``, in a square of 100 by 100."""
    listed = [until - timedelta(days=back) for back in reversed(range(number))]
    most = max((sum(days.get(day, {}).values()) for day in listed), default=0) or 1
    step = 100 / number
    return [
        Bar(day, round(position * step, 3), round(step * 0.8, 3), _stacked(days.get(day, {}), most))
        for position, day in enumerate(listed)
    ]


def _stacked(amounts: Mapping[str, Amounts], most: Amounts) -> list[Part]:
    top, parts = 100.0, []
    for name in (*OUTCOMES, AMOUNT):
        if amount := amounts.get(name, 0):
            height = round(float(100 * amount / most), 3)
            top = round(top - height, 3)
            parts.append(Part(name, top, height, amount))
    return parts


def shares(counts: Sequence[tuple[str, int]]) -> list[tuple[str, float, float]]:
    """Return how a strip of width 100 is divided: (name, x, width) of each count above 0."""
    whole = sum(count for _, count in counts)
    parts, before = [], 0
    for name, count in counts:
        if count:
            parts.append((name, round(100 * before / whole, 3), round(100 * count / whole, 3)))
        before += count
    return parts


def sparkline(values: Sequence[Amounts | float | None], top: float = 0) -> str:
    """Return the path of a line through values at equal distances, in a square of 100 by 100.

    The square reaches from 0 to the highest value, or to ``top`` if that is more. None is a gap.
    """
    highest = max((float(value) for value in values if value is not None), default=0)
    height = max(highest, top) or 1
    step = 100 / max(len(values) - 1, 1)
    path, verb = [], "M"
    for position, value in enumerate(values):
        if value is not None:
            x, y = round(position * step, 2), round(100 - 100 * float(value) / height, 2)
            # a point by itself is drawn as a dot
            path.append(f"{verb}{x:g} {y:g}{'h0' if verb == 'M' else ''}")
        verb = "M" if value is None else "L"
    return "".join(path)


def _thinned(moments: Sequence[Moment]) -> list[Moment]:
    """Keep every marked moment, the first and the last, and as many others as can be seen."""
    every = max(1, len(moments) // _MAX_POINTS)
    last = len(moments) - 1
    return [
        moment
        for position, moment in enumerate(moments)
        if moment.mark is not None or position % every == 0 or position == last
    ]


def _round_up(tokens: int) -> int:
    size: int = 10 ** max(0, len(str(tokens)) - 2)
    return -(-tokens * 11 // 10 // size) * size
