"""An action never takes another's place under the focus or the pointer while a page refreshes."""

from decimal import Decimal

import pytest
from playwright.sync_api import Locator, Page, expect

from refine.extensions import db
from refine.models import Agent, RefinementSession, User
from refine.tools import RefinementTool
from tests import factories, sql
from tests.browser.visiting import button, state

LONGER_THAN_A_GLANCE_MS = 600


@pytest.fixture
def agent(admin: User) -> Agent:
    made = factories.agent(*(factories.text_of(25) for _ in range(8)), account=admin.account)
    db.session.commit()
    return made


@pytest.fixture
def session(desk: Page, agent: Agent) -> RefinementSession:
    made = factories.session(agent)
    desk.goto(f"/sessions/{made.id}")
    expect(state(desk, "running")).to_be_visible()
    return made


def middle_of(control: Locator) -> tuple[float, float]:
    box = control.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def number_of_sessions() -> object:
    return sql.value("SELECT count(*) FROM refinement_sessions")


def fail(session: RefinementSession) -> None:
    session.give_up("the provider cannot be reached")
    db.session.commit()


def test_enter_on_stop_starts_no_session_once_the_session_ended(
    desk: Page, session: RefinementSession
) -> None:
    button(desk, "Stop").focus()

    fail(session)
    expect(button(desk, "Retry")).to_be_visible()
    desk.keyboard.press("Enter")

    expect(button(desk, "Stop")).to_be_disabled()
    desk.wait_for_timeout(300)
    assert number_of_sessions() == 1
    assert str(session.id) in desk.url


def test_refine_now_ignores_a_click_meant_for_a_replaced_button(desk: Page, agent: Agent) -> None:
    desk.clock.install()
    session = factories.session(agent)
    desk.goto(f"/agents/{agent.id}")
    place = middle_of(desk.get_by_role("link", name="Watch the session"))

    RefinementTool(session).execute("complete", summary="it is tidy")
    desk.clock.run_for(11_000)
    expect(button(desk, "Refine now")).to_be_visible()
    desk.mouse.click(*place)

    desk.wait_for_timeout(300)
    assert number_of_sessions() == 1

    desk.clock.run_for(LONGER_THAN_A_GLANCE_MS)
    desk.mouse.click(*place)

    desk.wait_for_url("**/sessions/*")
    assert number_of_sessions() == 2


def test_a_form_that_is_being_filled_in_stays_as_it_was_drawn(desk: Page, admin: User) -> None:
    account = admin.account
    account.request_sweep(user=admin)
    db.session.commit()
    desk.clock.install()
    desk.goto("/schedule")
    cap = desk.get_by_label("Monthly cost cap")
    cap.fill("50")

    account.configure(user=admin, monthly_cost_cap_usd=Decimal(20))
    db.session.commit()
    with desk.expect_response("**/schedule"):
        desk.clock.run_for(11_000)
    button(desk, "Save").click()

    expect(desk.get_by_text("Stored now: monthly cost cap 20.00")).to_be_visible()
    expect(cap).to_have_value("50")
    db.session.refresh(account)
    assert account.monthly_cost_cap_usd == 20
