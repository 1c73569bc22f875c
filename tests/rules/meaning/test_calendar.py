"""Dates in words are read as the same dates in figures."""

from refine.rules.meaning import calendar


def test_a_month_by_its_name_is_read_as_a_date() -> None:
    calendar._written_date.cache_clear()  # whichever test of this process asked first

    plain = calendar.with_plain_dates("They met on 3 March 2026.", "en")

    assert "March" not in plain
    assert "2026" in plain
