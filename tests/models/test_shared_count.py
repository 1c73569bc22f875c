"""Counts that all processes share."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from refine.extensions import db
from refine.models import SharedCount
from tests import sql

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def added(key="a", **fields):
    return SharedCount.add([key], **{"lasts": HOUR, "at": AT, **fields})[key].count


def test_counts_up_and_down_but_not_below_zero(app):
    assert [added(step=step) for step in (-1, 1, 1, 1, -1, -1, -1, -1, 1)] == [
        *(0, 1, 2, 3, 2, 1, 0, 0, 1)
    ]


def test_starts_over_when_its_time_has_passed(app):
    assert [added(at=AT + minutes * HOUR / 60) for minutes in (0, 59, 60, 61)] == [1, 2, 1, 2]


def test_a_total_never_starts_over(app):
    for years in range(3):
        SharedCount.add(["refused: a", "refused: b", "else"], at=AT + 365 * 24 * years * HOUR)
    added("refused: for an hour")

    assert SharedCount.totals("refused: ") == {"a": 3, "b": 3}


def test_simultaneous_requests_see_different_counts(app):
    def one(_):
        with app.app_context():
            counted = SharedCount.add(["b", "a"], lasts=HOUR)["a"].count
            db.session.commit()
            return counted

    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(one, range(40)))

    assert sorted(counts) == list(range(1, 41))


def test_deletes_expired_counts(app):
    added("ended")
    added("later", at=AT + HOUR / 2)
    SharedCount.add(["total"])

    SharedCount.delete_ended(AT + HOUR)
    db.session.commit()

    assert sql.value("SELECT string_agg(key, ' ' ORDER BY key) FROM shared_counts") == "later total"
