"""An admin asks that an agent be erased; everybody sees it, and any admin calls it off."""

from datetime import timedelta

import pytest

from refine import clock
from refine.extensions import db
from refine.models import Agent, User, agent_erasure
from tests import factories, sql
from tests.web.conftest import Browser, SignedIn, person, words_of

MONTHS = timedelta(days=60)


@pytest.fixture
def agent(admin: User) -> Agent:
    made = factories.agent("kept", account=admin.account, name="Wren")
    db.session.commit()
    return made


def test_an_admin_asks_and_everybody_sees_it(
    dashboard: Browser, agent: Agent, admin: User, signed_in: SignedIn
) -> None:
    viewer = signed_in(person(account=admin.account, role="viewer"))
    assert "Erase Wren for good…" in dashboard.get(f"/agents/{agent.id}/settings").text

    answer = dashboard.submit(f"/agents/{agent.id}/erasure")

    assert answer.headers["Location"] == f"/agents/{agent.id}"
    db.session.expire_all()
    asked = agent_erasure.last_request(agent)
    assert asked is not None
    assert asked.user == admin
    for browser in (dashboard, viewer):
        for path in (f"/agents/{agent.id}", f"/agents/{agent.id}/settings"):
            shown = words_of(browser.get(path).text)
            assert "Wren is erased for good on" in shown
            assert f"Asked for by {admin.email}, " in shown
        assert "Wren is erased for good on" in words_of(browser.get("/").text)
        assert "Erase Wren for good…" not in browser.get(f"/agents/{agent.id}/settings").text
    assert "Call it off" not in viewer.get(f"/agents/{agent.id}").text


def test_nobody_of_another_account_sees_it_and_no_snooze_hides_it(
    dashboard: Browser, agent: Agent, signed_in: SignedIn
) -> None:
    agent_erasure.request(agent)
    factories.ended(agent, "failed")
    db.session.commit()
    stranger = signed_in(person())

    dashboard.submit("/agents/many?work=snooze_week", {"agent": agent.id})

    assert "Wren is erased for good" not in stranger.get("/").text
    assert "Wren is erased for good" in words_of(dashboard.get("/").text)
    shown = words_of(dashboard.get(f"/agents/{agent.id}").text)
    assert "Asked for by an operator on the server" in shown


def test_any_admin_calls_it_off(agent: Agent, admin: User, signed_in: SignedIn) -> None:
    agent_erasure.request(agent, user=admin)
    db.session.commit()
    other = signed_in(person(account=admin.account))
    sql.rewrite("UPDATE sign_ins SET confirmed_at = confirmed_at - interval '15 minutes'")

    other.submit(f"/agents/{agent.id}/erasure/call-off")

    db.session.rollback()
    assert agent.erase_at is None
    assert "Called off: Wren is not erased." in other.get(f"/agents/{agent.id}").text
    again = other.submit(f"/agents/{agent.id}/erasure/call-off", follow_redirects=True)
    assert "The agent is not to be erased." in again.text


def test_asking_wants_the_password_again(dashboard: Browser, agent: Agent) -> None:
    path = f"/agents/{agent.id}/erasure"

    sql.rewrite("UPDATE sign_ins SET confirmed_at = confirmed_at - interval '15 minutes'")
    for answer in (dashboard.get(path), dashboard.submit(path)):
        assert answer.headers["Location"].startswith("/profile/confirm?next=")

    db.session.rollback()
    assert agent.erase_at is None


def test_a_second_request_is_refused_in_words(dashboard: Browser, agent: Agent) -> None:
    path = f"/agents/{agent.id}/erasure"
    dashboard.submit(path)

    again = dashboard.submit(path)

    assert (again.status_code, "is to be erased on" in again.text) == (409, True)


def test_after_the_erasure_nothing_is_announced(dashboard: Browser, agent: Agent) -> None:
    agent_erasure.request(agent, at=clock.now() - MONTHS)
    assert agent_erasure.carry_out(agent, clock.now())
    db.session.commit()

    assert "is erased for good" not in dashboard.get("/").text
    assert "is erased for good" not in dashboard.get(f"/agents/{agent.id}/erasure").text
