"""How pages say things."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import time_machine
from flask import Flask, g

from refine.models import User
from refine.models.runs.run import LIVE
from refine.models.runs.session.state import ENDED, TRIGGERS
from refine.web import formatting, words
from refine.web.charts import OUTCOMES
from tests.recorded_actions import recorded_actions
from tests.web.conftest import SignedIn

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_an_age_counts_from_now() -> None:
    with time_machine.travel(NOW, tick=False):
        assert formatting.ago(NOW - timedelta(hours=2)) == "2 hours ago"


def test_a_local_time_that_comes_twice_is_two_instants(app: Flask) -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=zone)

    with app.test_request_context():
        g.zone = ZoneInfo("UTC")
        shown = [formatting.when(each) for each in (first, first.replace(fold=1))]

    assert [each.count("00:30:00 UTC") for each in shown] == [1, 0]


def test_a_missing_time_is_never() -> None:
    assert (formatting.ago(None), formatting.when(None)) == ("", "never")


@pytest.mark.parametrize(
    ("value", "said"), [(None, "–"), (0, "0"), (1234, "1,234"), (-1234567, "-1,234,567")]
)
def test_numbers_have_separators(value: int | None, said: str) -> None:
    assert formatting.number(value) == said


def test_the_first_letter_becomes_a_capital_and_the_rest_stays() -> None:
    assert formatting.first_upper("the model GPT said") == "The model GPT said"
    assert formatting.first_upper("") == ""


def test_an_unknown_action_is_shown_as_it_is() -> None:
    assert words.action("memory_forgotten") == "memory forgotten"


def test_every_status_and_trigger_has_words_and_a_shape_of_its_own() -> None:
    assert set(words.STATUSES) == {*LIVE, *ENDED} == set(OUTCOMES)
    assert set(words.TRIGGERS) == set(TRIGGERS)
    shapes = [shape for _, shape, _ in words.STATUSES.values()]
    assert len(set(shapes)) == len(shapes)


def test_the_actions_with_words_are_those_that_are_recorded() -> None:
    assert words.ACTIONS.keys() == recorded_actions()


def test_times_are_shown_in_the_accounts_zone_with_utc(admin: User, signed_in: SignedIn) -> None:
    admin.account.time_zone = "America/New_York"
    admin.account.next_due_at = datetime(2026, 3, 9, 3, 30, tzinfo=UTC)

    page = signed_in(admin).get("/").text

    assert (
        '<time datetime="2026-03-09T03:30:00+00:00" title="2026-03-09 03:30:00 UTC">'
        "8 Mar 2026, 23:30</time>"
    ) in page
    assert "Times are in America/New_York." in page
