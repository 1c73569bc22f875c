"""The geometry of plots."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from refine.web.charts import (
    AMOUNT,
    OUTCOMES,
    Moment,
    day_bars,
    shares,
    sparkline,
    step_plot,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
END = START + timedelta(days=10)


def at(days: float, tokens: int, mark: str | None = None) -> Moment:
    return Moment(START + timedelta(days=days), tokens, mark)


def test_no_moments_make_no_plot() -> None:
    assert step_plot([], 100, END) is None


def test_the_line_steps_through_all_moments_to_now() -> None:
    plot = step_plot([at(0, 100), at(5, 50), at(10, 75)], 100, END)

    assert plot is not None
    assert plot.path == "M0 16.67H50V58.33H100V37.5H100"
    assert (plot.budget_y, plot.floor_y) == (16.67, None)


def test_the_axes_have_round_figures_and_midnights() -> None:
    noon = timedelta(hours=12)
    moments = [Moment(START + noon, 100), Moment(END + noon, 75)]

    plot = step_plot(moments, 100, END + noon)

    assert plot is not None
    assert [tick.value for tick in plot.tokens] == [0, 20, 40, 60, 80, 100, 120]
    assert [tick.place for tick in plot.tokens][-1] == 0
    assert [tick.value.day for tick in plot.days] == [3, 5, 7, 9, 11]
    assert [tick.place for tick in plot.days] == [15, 35, 55, 75, 95]


def test_days_begin_by_the_clock_of_the_zone() -> None:
    dublin = ZoneInfo("Europe/Dublin")
    until = datetime(2026, 4, 1, 12, tzinfo=dublin)

    plot = step_plot([Moment(until - timedelta(days=5), 10)], 100, until)

    assert plot is not None
    assert {tick.value.hour for tick in plot.days} == {0}


def test_the_floor_is_drawn_and_may_be_above_the_budget() -> None:
    above = step_plot([at(0, 100)], 50, END, floor=75)
    below = step_plot([at(0, 100)], 100, END, floor=75)

    assert above is not None
    assert below is not None
    assert (above.floor_y, above.is_budget_below) == (37.5, True)
    assert (below.floor_y, below.is_budget_below) == (37.5, False)


def test_marks_lie_on_the_line() -> None:
    plot = step_plot([at(0, 100), at(5, 50, "session"), at(10, 50)], 100, END)

    assert plot is not None
    assert [(x, y, moment.mark) for x, y, moment in plot.marks] == [(50.0, 58.33, "session")]


def test_saves_close_to_another_mark_are_not_marked() -> None:
    saves = [at(day / 10, 10, "save") for day in range(0, 100, 2)]

    plot = step_plot([*saves, at(5.01, 20, "session"), at(5.02, 20, "undo")], 100, END)

    assert plot is not None
    places = [x for x, _, moment in plot.marks if moment.mark == "save"]
    assert places == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, *range(56, 99, 4)]
    assert [moment.mark for _, _, moment in plot.marks if moment.mark != "save"] == [
        "session",
        "undo",
    ]


def test_a_plot_spans_at_least_a_day() -> None:
    plot = step_plot([Moment(END, 10)], 100, END)

    assert plot is not None
    assert [tick.place for tick in plot.days] == [0, 100]


@pytest.mark.parametrize("tokens", [0, 1, 9, 10, 99, 100, 4_999, 5_000, 123_456, 10**9])
def test_the_plot_stays_within_its_square(tokens: int) -> None:
    plot = step_plot([at(0, tokens), at(3, 0, "undo"), at(10, tokens)], 5_000, END, floor=tokens)

    assert plot is not None
    drawn = [float(number) for number in re.findall(r"[\d.]+", plot.path)]
    assert all(0 <= number <= 100 for number in [*drawn, plot.budget_y, plot.floor_y])
    assert plot.tokens[-1].value > max(tokens, 5_000)
    assert 3 <= len(plot.tokens) <= 8


TODAY = date(2026, 3, 10)


def test_every_day_has_a_bar() -> None:
    bars = day_bars({TODAY: {"failed": 1}}, TODAY, 30)

    assert len(bars) == 30
    assert (bars[0].day, bars[-1].day) == (date(2026, 2, 9), TODAY)
    assert [len(bar.parts) for bar in bars] == [0] * 29 + [1]


def test_a_bar_stacks_its_outcomes_worst_on_top() -> None:
    days = {
        TODAY: {"failed": 1, "completed": 2, "declined": 1},
        TODAY - timedelta(1): {"queued": 2},
    }

    bars = day_bars(days, TODAY, 2)

    assert bars[1].parts == [
        ("completed", 50.0, 50.0, 2),
        ("declined", 25.0, 25.0, 1),
        ("failed", 0.0, 25.0, 1),
    ]
    assert bars[0].parts == [("queued", 50.0, 50.0, 2)]


def test_bars_share_the_width() -> None:
    bars = day_bars({}, TODAY, 4)

    assert [(bar.x, bar.width) for bar in bars] == [(0, 20), (25, 20), (50, 20), (75, 20)]


def test_every_outcome_has_a_part() -> None:
    bars = day_bars({TODAY: dict.fromkeys(OUTCOMES, 1)}, TODAY, 1)

    assert [part[0] for part in bars[0].parts] == list(OUTCOMES)
    assert bars[0].parts[-1][1] == pytest.approx(0, abs=0.01)


def test_a_plain_amount_is_a_bar_of_one_part() -> None:
    days = {TODAY: {AMOUNT: Decimal("0.5")}, TODAY - timedelta(1): {AMOUNT: Decimal(2)}}

    bars = day_bars(days, TODAY, 3)

    assert [bar.parts for bar in bars] == [
        [],
        [(AMOUNT, 0.0, 100.0, 2)],
        [(AMOUNT, 75.0, 25.0, Decimal("0.5"))],
    ]
    assert [bar.amount for bar in bars] == [0, 2, Decimal("0.5")]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ([0, 5, 10], "M0 100h0L50 50L100 0"),
        ([10, None, 10, 5, None], "M0 0h0M50 0h0L75 50"),
        ([0], "M0 100h0"),
        ([], ""),
        ([None], ""),
    ],
)
def test_a_sparkline_goes_through_known_values_at_equal_distances(
    values: list[float | None], path: str
) -> None:
    assert sparkline(values) == (path, None)


@pytest.mark.parametrize(
    ("limit", "y", "path"), [(40, 0, "M0 75h0L100 50"), (10, 50, "M0 50h0L100 0")]
)
def test_a_sparkline_has_room_for_its_limit(limit: int, y: float, path: str) -> None:
    assert sparkline([10, 20], limit) == (path, y)


def test_a_strip_is_divided_by_counts_and_what_is_none_has_no_place() -> None:
    assert shares([("a", 1), ("b", 0), ("c", 3)]) == [("a", 0, 25), ("c", 25, 75)]
    assert shares([("a", 0)]) == []
