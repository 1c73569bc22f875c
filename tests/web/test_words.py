"""How pages say things."""

from datetime import UTC, datetime

from refine.models import User
from refine.models.runs.run import LIVE
from refine.models.runs.session import ENDED, TRIGGERS
from refine.web import words
from refine.web.charts import OUTCOMES
from tests.web.conftest import SignedIn


def test_every_status_and_trigger_has_words_and_a_shape_of_its_own() -> None:
    assert set(words.STATUSES) == {*LIVE, *ENDED} == set(OUTCOMES)
    assert set(words.TRIGGERS) == set(TRIGGERS)
    shapes = [shape for _, shape, _ in words.STATUSES.values()]
    assert len(set(shapes)) == len(shapes)


def test_times_are_shown_in_the_accounts_zone_with_utc(admin: User, signed_in: SignedIn) -> None:
    admin.account.time_zone = "America/New_York"
    admin.account.next_due_at = datetime(2026, 3, 9, 3, 30, tzinfo=UTC)

    page = signed_in(admin).get("/").text

    assert (
        '<time datetime="2026-03-09T03:30:00+00:00" title="2026-03-09 03:30:00 UTC">'
        "8 Mar 2026, 23:30</time>"
    ) in page
    assert "Times are in America/New_York." in page
