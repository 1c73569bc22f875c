"""The geometry of plots."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest

from refine.web.charts import Moment, day_bars, step_plot

START = datetime(2026, 3, 1, tzinfo=UTC)
END = START + timedelta(days=10)


def at(days: float, tokens: int, mark: str | None = None) -> Moment:
    return Moment(START + timedelta(days=days), tokens, mark)


def test_the_line_steps_through_all_moments_to_now() -> None:
    plot = step_plot([at(0, 100), at(5, 50), at(10, 75)], 100, END, floor=60)

    assert plot.path == "M0 16.67H50V58.33H100V37.5H100"
    assert (plot.budget_y, plot.floor_y) == (16.67, 50.0)


@pytest.mark.parametrize("tokens", [0, 1, 9, 10, 99, 100, 4_999, 5_000, 123_456, 10**9])
def test_the_plot_stays_within_its_square(tokens: int) -> None:
    plot = step_plot([at(0, tokens), at(3, 0, "undo"), at(10, tokens)], 5_000, END, floor=tokens)

    drawn = [float(number) for number in re.findall(r"[\d.]+", plot.path)]
    assert all(0 <= number <= 100 for number in [*drawn, plot.budget_y, plot.floor_y])
    assert plot.tokens[-1].value > max(tokens, 5_000)
    assert 3 <= len(plot.tokens) <= 8


TODAY = date(2026, 3, 10)


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
