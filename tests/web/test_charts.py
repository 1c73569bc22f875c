"""The geometry of plots."""

from datetime import date, timedelta

from refine.web.charts import day_bars

TODAY = date(2026, 3, 10)


def test_a_bar_stacks_its_outcomes_worst_on_top():
    numbers = {
        TODAY: {"failed": 1, "completed": 2, "declined": 1},
        TODAY - timedelta(1): {"queued": 2},
    }

    bars = day_bars(numbers, TODAY, 2)

    assert bars.paths == {
        "completed": "M50.00 50.00h40.0v50.00h-40.0z",
        "queued": "M0.00 50.00h40.0v50.00h-40.0z",
        "declined": "M50.00 25.00h40.0v25.00h-40.0z",
        "failed": "M50.00 0.00h40.0v25.00h-40.0z",
    }
    assert [(x, day) for x, day, _ in bars.days] == [(0, TODAY - timedelta(1)), (50, TODAY)]
    assert bars.most == 4
