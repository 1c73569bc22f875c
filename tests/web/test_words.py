"""How pages say things."""

from datetime import UTC, datetime, timedelta

import time_machine

from refine import clock
from refine.extensions import db
from refine.models import User
from refine.models.runs.run import LIVE
from refine.models.runs.session.session import ENDED, TRIGGERS
from refine.web import words
from refine.web.charts import OUTCOMES
from tests import factories
from tests.web.conftest import SignedIn, words_of


def test_every_status_and_trigger_has_words_and_a_shape_of_its_own() -> None:
    assert set(words.STATUSES) == {*LIVE, *ENDED} == set(OUTCOMES)
    assert set(words.TRIGGERS) == set(TRIGGERS)
    shapes = [shape for _, shape, _ in words.STATUSES.values()]
    assert len(set(shapes)) == len(shapes)


def test_times_are_shown_in_the_accounts_zone_with_utc(admin: User, signed_in: SignedIn) -> None:
    admin.account.time_zone = "America/New_York"
    admin.account.next_due_at = datetime(2036, 3, 10, 3, 30, tzinfo=UTC)

    page = signed_in(admin).get("/").text

    assert (
        '<time datetime="2036-03-10T03:30:00+00:00" title="2036-03-10 03:30:00 UTC">'
        "9 Mar 2036, 23:30</time>"
    ) in page
    assert "Times are in America/New_York." in page


def test_nothing_is_to_happen_at_a_time_that_has_passed(admin: User, signed_in: SignedIn) -> None:
    now, browser = clock.now(), signed_in(admin)
    agent = factories.agent(account=admin.account)
    failed = factories.ended(agent, "failed", error_kind="timeout")
    admin.account.next_due_at = now + timedelta(minutes=1)
    db.session.commit()
    pages = [f"/sessions/{failed.id}", "/"]

    ahead = "".join(words_of(browser.get(page).text) for page in pages)
    with time_machine.travel(now + timedelta(hours=1), tick=False):
        passed = "".join(words_of(browser.get(page).text) for page in pages)

    assert "the next one starts after" in ahead
    assert "next attempt after" in ahead
    assert "next attempt" not in passed
    assert "the next one starts" not in passed
    assert "due now" not in ahead
    assert "Own account : due now" in passed
