"""The geometry of plots."""

from datetime import date, timedelta

from refine.web.charts import day_bars

TODAY = date(2026, 3, 10)


def test_a_bar_stacks_its_outcomes_worst_on_top():
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
