from datetime import UTC, datetime, timedelta

import pytest

from refine.extensions import db
from refine.models import PeriodicWork
from tests import sql

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def marked(event="budget_check"):
    """When the event was, as committed."""
    return sql.value(f"SELECT at FROM periodic_work WHERE event = '{event}'")


def begin(at=NOW, event="budget_check"):
    after_id = PeriodicWork.begin(event, every=HOUR, at=at)
    db.session.commit()
    return after_id


def reached(after_id):
    PeriodicWork.reached("budget_check", after_id)
    db.session.commit()


def whole_round(at=NOW):
    """A round that is begun and brought to its end; tells whether one was due."""
    after_id = begin(at)
    if after_id is not None:
        reached(None)
    return after_id == 0


@pytest.mark.parametrize(
    ("later", "is_due"),
    [
        (HOUR - timedelta(microseconds=1), False),
        (HOUR, True),
        (timedelta(days=-1), True),  # the last one was in the future
    ],
)
def test_a_round_is_due_when_its_time_has_passed(app, later, is_due):
    assert whole_round()
    assert marked() == NOW

    assert whole_round(NOW + later) == is_due

    assert marked() == (NOW + later if is_due else NOW)


def test_an_interrupted_round_continues_and_keeps_its_start(app):
    begin()
    reached(17)

    after_id = begin(NOW + timedelta(minutes=1))

    assert after_id == 17
    assert marked() == NOW


def test_noting_an_event_replaces_its_mark(app):
    assert PeriodicWork.age("tick", NOW) is None

    for at in (NOW, NOW + HOUR, NOW):
        PeriodicWork.note("tick", at)
    db.session.commit()

    assert marked("tick") == NOW
    assert PeriodicWork.age("tick", NOW + HOUR) == HOUR
