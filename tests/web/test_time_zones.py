"""The zone in which a user sees times: their account's, or one of their own."""

from refine.extensions import db
from refine.models import User
from tests import factories
from tests.web.conftest import HERE, Browser, records, words_of


def test_times_are_in_the_accounts_zone_at_first(dashboard: Browser, admin: User) -> None:
    admin.account.time_zone = "Europe/Dublin"
    db.session.commit()

    assert "Times are in Europe/Dublin." in words_of(dashboard.get("/").text)


def test_a_zone_of_ones_own_is_recorded_and_holds_on_every_page(
    dashboard: Browser, admin: User
) -> None:
    agent = factories.agent("one", account=admin.account)
    session = factories.session(agent)
    db.session.commit()
    before = words_of(dashboard.get(f"/sessions/{session.id}").text)

    answer = dashboard.submit(
        "/profile/time-zone", {"time_zone": " Asia/Kathmandu "}, follow_redirects=True
    )

    assert "Times are in Asia/Kathmandu now." in words_of(answer.text)
    after = words_of(dashboard.get(f"/sessions/{session.id}").text)
    assert "Times are in Asia/Kathmandu." in after
    assert before != after.replace("Asia/Kathmandu", "UTC")
    (record,) = records("user_updated")
    assert (record.user_id, record.auditable_id) == (admin.id, str(admin.id))
    assert record.data == {"time_zone": "Asia/Kathmandu", **HERE}


def test_an_unknown_zone_is_explained_beside_the_field(dashboard: Browser) -> None:
    answer = dashboard.submit("/profile/time-zone", {"time_zone": "Atlantis"})

    assert answer.status_code == 422
    assert "Time zone must be an IANA name" in words_of(answer.text)
    assert 'value="Atlantis"' in answer.text
    assert records("user_updated") == []
