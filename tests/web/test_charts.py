"""The geometry of plots."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from refine.web.charts import AMOUNT, OUTCOMES, Moment, day_bars, shares, sparkline, step_plot

START = datetime(2026, 3, 1, tzinfo=UTC)
END = START + timedelta(days=10)


def at(days: float, tokens: int, mark: str | None = None) -> Moment:
    return Moment(START + timedelta(days=days), tokens, mark)


def test_no_moments_make_no_plot() -> None:
    assert step_plot([], 100, END) is None


def test_the_line_steps_through_all_moments_to_now() -> None:
    plot = step_plot([at(0, 100), at(5, 50), at(10, 75)], 100, END)

    assert plot is not None
    assert plot.top_tokens == 110
    assert plot.path == "M0 9.091H50.0V54.545H100.0V31.818H100"
    assert plot.budget_y == 9.091
    assert (plot.since, plot.until) == (START, END)


def test_marks_lie_on_the_line() -> None:
    plot = step_plot([at(0, 100), at(5, 50, "session"), at(10, 50)], 100, END)

    assert plot is not None
    assert [(x, y, moment.mark) for x, y, moment in plot.marks] == [(50.0, 54.545, "session")]


def test_a_plot_spans_at_least_a_day() -> None:
    plot = step_plot([Moment(END, 10)], 100, END)

    assert plot is not None
    assert plot.since == END - timedelta(days=1)


@pytest.mark.parametrize("tokens", [0, 1, 9, 10, 99, 100, 4_999, 5_000, 123_456, 10**9])
def test_the_plot_stays_within_its_square(tokens: int) -> None:
    plot = step_plot([at(0, tokens), at(3, 0, "undo"), at(10, tokens)], 5_000, END)

    assert plot is not None
    drawn = [float(number) for number in re.findall(r"[\d.]+", plot.path)]
    assert all(0 <= number <= 100 for number in [*drawn, plot.budget_y])
    assert plot.top_tokens >= max(tokens, 5_000)


def test_many_moments_are_thinned_out_except_for_marks() -> None:
    moments = [
        at(number / 300, number, "save" if number % 100 == 7 else None) for number in range(3_000)
    ]

    plot = step_plot(moments, 100, END)

    assert plot is not None
    assert 300 <= plot.path.count("H") <= 340
    assert len(plot.marks) == 30
    assert plot.path.endswith(f"V{round(100 - 100 * 2_999 / plot.top_tokens, 3)}H100")


def test_few_moments_are_all_drawn() -> None:
    plot = step_plot([at(number, 10 * number) for number in range(4)], 100, END)

    assert plot is not None
    assert plot.path.count("V") == 3


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


def test_a_sparkline_goes_through_values_at_equal_distances() -> None:
    assert sparkline([0, 5, 10]) == "M0 100h0L50 50L100 0"


def test_a_sparkline_leaves_a_gap_where_a_value_is_unknown() -> None:
    assert sparkline([10, None, 10, 5, None]) == "M0 0h0M50 0h0L75 50"


def test_a_sparkline_reaches_up_to_the_given_top() -> None:
    assert sparkline([10, 20], top=40) == "M0 75h0L100 50"


def test_a_sparkline_of_nothing_is_empty() -> None:
    assert sparkline([]) == sparkline([None]) == ""


def test_a_sparkline_of_one_value_is_a_dot() -> None:
    assert sparkline([0]) == "M0 100h0"


def test_a_strip_is_divided_by_counts_and_what_is_none_has_no_place() -> None:
    assert shares([("a", 1), ("b", 0), ("c", 3)]) == [("a", 0, 25), ("c", 25, 75)]
    assert shares([("a", 0)]) == []
