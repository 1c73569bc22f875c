"""The list of deliveries, and sending one again."""

from datetime import timedelta

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Delivery
from tests import factories
from tests.web.conftest import said

PATH = "/deliveries"


@pytest.fixture
def deliveries(account):
    """One that waits for its second attempt, one that arrived, one that was given up."""
    factories.endpoint(account, "https://example.org/hook")
    agent = factories.agent(account=account)
    for status in ("completed", "declined", "failed"):
        factories.ended(agent, status)
    found = list(db.session.scalars(db.select(Delivery).order_by(Delivery.id)))
    waiting, delivered, given_up = found
    waiting.note(clock.now(), "503")
    delivered.note(clock.now(), "204")
    given_up.attempts = 9
    db.session.flush()
    given_up.note(clock.now(), "timeout")
    db.session.commit()
    return found


def test_deliveries_are_listed_with_what_became_of_them(dashboard, deliveries):
    page = said(dashboard, PATH)

    for words in ("waiting HTTP 503", "delivered HTTP 204", "given up timeout", "example.org"):
        assert words in page


@pytest.mark.parametrize("outcome", ["waiting", "delivered", "given_up"])
def test_the_list_is_narrowed_by_outcome_and_event(dashboard, deliveries, outcome):
    by_outcome = {"waiting": 0, "delivered": 1, "given_up": 2}
    page = said(dashboard, f"{PATH}?outcome={outcome}&kind=session.ended")

    shown = [each.id for each in deliveries if f"#{each.id} " in page]
    assert shown == [deliveries[by_outcome[outcome]].id]
    assert "No deliveries match." in said(dashboard, f"{PATH}?kind=access.asked")


def test_a_delivery_is_sent_again(dashboard, deliveries):
    last = deliveries[-1]
    answer = dashboard.submit(f"{PATH}/{last.id}/replay")

    db.session.rollback()
    assert answer.status_code == 303
    assert (last.outcome, last.attempts, last.last_status) == ("waiting", 0, None)
    assert last.next_at <= clock.now() + timedelta(seconds=1)


def test_nothing_can_be_sent_to_a_removed_webhook(dashboard, deliveries):
    last = deliveries[-1]
    last.endpoint.remove(by={"by": "command line"})
    db.session.commit()

    assert "webhook removed" in said(dashboard, PATH)
    assert dashboard.submit(f"{PATH}/{last.id}/replay").status_code == 409
    db.session.rollback()
    assert last.next_at is None


def test_the_schedule_leads_to_the_deliveries_of_its_account(dashboard, account):
    assert f'href="{PATH}"' in dashboard.get("/schedule").text
    assert "No deliveries yet." in said(dashboard, PATH)
