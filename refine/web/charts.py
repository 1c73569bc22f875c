"""The geometry of plots: figures in, percentages out; the templates draw them as SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

# How many days the lists of recent events go back.
DAYS_SHOWN = 30
# The approximate number of ticks on an axis.
_TOKEN_TICKS = 5
_DAY_TICKS = 5
# From the bottom of a bar to its top, the worst on top.
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


class Moment(NamedTuple):
    at: datetime
    tokens: int
    mark: str | None = None
    session_id: object = None
    record_id: int | None = None
    # by the sessions so far
    saved: int = 0


class Tick(NamedTuple):
    """A place on an axis, in percent, and its value."""

    place: float
    value: Any


@dataclass(frozen=True)
class Plot:
    """A step line in a square of 100 by 100, with its lines, marks and axes."""

    path: str
    # between it and what the tokens would be without what was saved
    area: str
    saved: int
    # what the tokens would be now
    without: int
    budget_y: float
    floor_y: float
    marks: list[tuple[float, float, Moment]]
    tokens: list[Tick]
    days: list[Tick]

    @property
    def is_budget_below(self) -> bool:
        return self.budget_y > self.floor_y


def step_plot(moments: Sequence[Moment], budget: int, until: datetime, floor: int) -> Plot:
    """Return the plot by days of ``until``'s zone; ``floor`` is what a session must leave."""
    since = min(moments[0].at, until - timedelta(days=1))
    highest = max(budget, *(moment.tokens + moment.saved for moment in moments))
    least = highest / _TOKEN_TICKS
    size = int(10 ** max(0, len(str(int(least))) - 1))
    step = next(step * size for step in (1, 2, 5, 10) if step * size >= least)
    top = step * (highest // step + 1)

    def x(at: datetime) -> float:
        return round(100 * ((at - since) / (until - since)), 2)

    def y(tokens: int) -> float:
        return round(100 - 100 * tokens / top, 2)

    def corners(amounts: list[int]) -> list[str]:
        ys = [y(tokens) for tokens in amounts]
        turns = zip([x(each.at) for each in moments[1:]], ys, ys[1:], strict=False)
        return [f"0 {ys[0]:g}", *(f"{at:g} {each:g}" for at, *two in turns for each in two)]

    mass = corners([each.tokens for each in moments])
    without = corners([each.tokens + each.saved for each in moments])
    return Plot(
        f"M{'L'.join(mass)}",
        f"M{'L'.join([*without, *reversed(mass)])}z",
        moments[-1].saved,
        moments[-1].tokens + moments[-1].saved,
        y(budget),
        y(floor),
        [(x(each.at), y(each.tokens), each) for each in moments if each.mark],
        [Tick(y(tokens), tokens) for tokens in range(0, top + 1, step)],
        [Tick(x(at), at) for at in _midnights(since, until)],
    )


def _midnights(since: datetime, until: datetime) -> list[datetime]:
    every = -(-(until - since).days // _DAY_TICKS) or 1
    day = datetime(until.year, until.month, until.day, tzinfo=until.tzinfo)
    found = []
    while day >= since:
        found.append(day)
        # by the calendar: days may have 23 hours
        day -= timedelta(days=every)
    return found[::-1]


class DayBars(NamedTuple):
    """Stacked bars of days in a square of 100 by 100. ``paths``: of all days, by outcome; ``days``:
    where each begins, and its numbers by outcome; ``most``: of one day; ``width``: of a bar.
    """

    paths: Mapping[str, str]
    days: list[tuple[float, date, Mapping[str, int]]]
    most: int
    width: float


def day_bars(numbers: Mapping[date, Mapping[str, int]], until: date, days: int) -> DayBars:
    """Return bars for so many days up to ``until``."""
    listed = [until - timedelta(days=back) for back in reversed(range(days))]
    drawn = [
        (round(100 * nth / days, 2), day, numbers.get(day, {})) for nth, day in enumerate(listed)
    ]
    most = max(sum(of_day.values()) for _, _, of_day in drawn)
    paths, width = dict.fromkeys(OUTCOMES, ""), round(80 / days, 2)
    for x, _, of_day in drawn:
        y = 100.0
        for outcome in OUTCOMES:
            if number := of_day.get(outcome, 0):
                height = 100 * number / most
                y -= height
                paths[outcome] += f"M{x:.2f} {y:.2f}h{width}v{height:.2f}h{-width}z"
    shown = {outcome: path for outcome, path in paths.items() if path}
    return DayBars(shown, drawn, most, width)
