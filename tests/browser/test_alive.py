"""Pages stay true by themselves, and nothing moves under the reader's hand meanwhile."""

import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from refine import clock
from refine.extensions import db
from refine.models import Agent, PeriodicWork, User
from tests import factories, sql
from tests.browser.visiting import begin_signed_in, button, heading, rows

IDLE_MS = 31_000
IS_BUSY = "document.querySelector('main[aria-busy=true]')"
SET_HIDDEN = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def agents(admin: User) -> list[Agent]:
    names = ("Ada", "Bo", "Cleo", "Dov", "Eli")
    made = [factories.agent("one", account=admin.account, name=name) for name in names]
    db.session.commit()
    return made


def fail_session_of(agent: Agent, kind: str = "provider_unreachable") -> None:
    factories.session(agent).give_up("the provider cannot be reached", kind)
    db.session.commit()


def opened(desk: Page, path: str) -> Page:
    desk.clock.install()
    desk.goto(path)
    return desk


def refreshed(page: Page) -> None:
    with page.expect_response(lambda answer: "hx-source" in answer.request.headers):
        page.clock.run_for(IDLE_MS)


def top_of(shown: Locator) -> float:
    box = shown.bounding_box()
    assert box is not None
    return box["y"]


@pytest.mark.slow
def test_every_page_left_open_tells_of_a_failure_elsewhere(desk: Page, agents: list[Agent]) -> None:
    for number, path in enumerate(("/", "/agents", "/sessions", "/audit", "/ops")):
        page = opened(desk, path)
        refreshed(page)  # nothing has changed so far
        failed = agents[number]
        fail_session_of(failed)
        refreshed(page)

        told = page.locator("main :is(tr, .case)").filter(has_text=failed.name)
        expect(told.filter(has_text=re.compile("failed|cannot be reached"))).to_be_visible()
        expect(page).to_have_title(re.compile(rf"^\({number + 1}\) "))
        expect(page.locator("#icon")).to_have_attribute("href", re.compile("^data:image/svg"))


@pytest.mark.slow
def test_an_open_overview_tells_within_a_minute_that_the_clock_is_silent(
    desk: Page, agents: list[Agent]
) -> None:
    PeriodicWork.note("tick", clock.now())
    db.session.commit()
    page = opened(desk, "/")
    needs = page.get_by_role("region", name="Needs attention")
    expect(needs).not_to_contain_text("Clock")

    PeriodicWork.note("tick", clock.now() - timedelta(minutes=6))
    db.session.commit()
    refreshed(page)

    expect(needs).to_contain_text("Clock: the last tick was 6 minutes ago; start refine clock")


def test_a_page_that_nobody_sees_does_not_ask_until_it_is_seen(
    desk: Page, agents: list[Agent]
) -> None:
    looks: list[str] = []
    desk.on("request", lambda request: looks.append(request.headers.get("hx-source", "")))
    page = opened(desk, "/sessions")

    page.evaluate(SET_HIDDEN, True)
    page.clock.run_for(3 * IDLE_MS)
    asked_while_hidden = looks.count("main#main")
    fail_session_of(agents[0])
    page.evaluate(SET_HIDDEN, False)

    expect(rows(page, "1 session, newest first")).to_have_count(1)
    assert asked_while_hidden == 0


def test_ticks_stay_with_their_agents_while_the_page_says_that_it_changed(
    desk: Page, agents: list[Agent]
) -> None:
    page = opened(desk, "/agents?sort=name")
    page.get_by_label("Select Bo").check()

    sql.run("UPDATE agents SET name = 'Zoe' WHERE name = 'Ada'")
    fail_session_of(agents[2])
    refreshed(page)

    expect(page.locator("#as-of")).to_contain_text(re.compile(r"changed since \d+:\d\d:\d\d"))
    expect(page).to_have_title(re.compile(r"^\(1\) "))
    expect(rows(page, "Agents").first).to_contain_text("Ada")

    page.get_by_role("link", name="Refresh").click()

    expect(rows(page, "Agents").first).to_contain_text("Bo")
    expect(page.get_by_label("Select Bo")).to_be_checked()
    expect(page.get_by_role("checkbox", checked=True)).to_have_count(1)


def test_what_is_pointed_at_stays_under_the_pointer(desk: Page, agents: list[Agent]) -> None:
    fail_session_of(agents[0])
    desk.set_viewport_size({"width": 1200, "height": 300})
    page = opened(desk, "/sessions")
    ada = page.get_by_role("link", name="Ada")
    ada.hover()
    before = top_of(ada)
    fail_session_of(agents[1])

    refreshed(page)

    expect(page.locator("#as-of")).to_contain_text("Something changed since")
    assert top_of(ada) == before

    refreshed(page)  # by now the pointer seems to be left there

    expect(rows(page, "Sessions")).to_have_count(2)
    assert top_of(ada) == pytest.approx(before, abs=1)


@pytest.mark.slow
def test_an_action_shows_work_keeps_the_place_and_its_message_leaves(
    desk: Page, agents: list[Agent]
) -> None:
    for agent, kind in zip(agents, ("timeout", "provider_unreachable"), strict=False):
        fail_session_of(agent, kind)  # each is a case of its own
    desk.goto("/")
    held: list[Route] = []
    desk.route("**/agents/many", lambda route: held.append(route))
    acknowledge = button(desk, "Acknowledge Bo")

    acknowledge.press("Enter")
    desk.wait_for_function(IS_BUSY)
    held[0].continue_()

    message = desk.get_by_role("status").get_by_text("acknowledged")
    expect(message).to_be_visible()
    expect(acknowledge).to_have_count(0)
    assert not desk.evaluate(IS_BUSY)
    expect(desk.get_by_label("Select Ada")).to_be_focused()
    desk.evaluate("document.getAnimations().forEach((each) => each.finish())")
    expect(message).to_have_count(0)


@pytest.mark.parametrize("way", ["by itself", "by an action", "signed out elsewhere"])
def test_an_expired_sign_in_leaves_nothing_of_the_page(
    desk: Page, agents: list[Agent], way: str
) -> None:
    fail_session_of(agents[0])
    page = opened(desk, "/")

    if way == "signed out elsewhere":
        page.context.clear_cookies()
    else:
        sql.run("UPDATE sign_ins SET ended_at = now()")
    if way == "by itself":
        page.clock.run_for(IDLE_MS)
    else:
        button(page, "Acknowledge Ada").click()

    expect(button(page, "Sign in")).to_be_visible()
    expect(page.get_by_role("banner")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"/sign-in"))


def test_a_page_leaves_when_somebody_else_signs_in_beside_it(
    desk: Page, agents: list[Agent], admin: User, site: str
) -> None:
    colleague = factories.user(account=admin.account, email="colleague@example.org")
    page = opened(desk, "/agents")
    own = page.get_by_role("banner").get_by_role("link", name=admin.email)
    expect(own).to_be_visible()

    begin_signed_in(page.context.new_page(), colleague, site)
    page.clock.run_for(IDLE_MS)

    expect(page.get_by_role("link", name="colleague@example.org")).to_be_visible()
    expect(own).to_have_count(0)


def test_how_a_session_ended_is_laid_over_nothing_that_shows_it(
    desk: Page, agents: list[Agent]
) -> None:
    session = factories.session(agents[0])
    db.session.commit()
    page = opened(desk, f"/sessions/{session.id}")

    session.give_up("the provider cannot be reached", "provider_unreachable")
    db.session.commit()
    page.clock.run_for(3_000)

    told = page.locator(".message.over")
    expect(told).to_have_text("Failed: session of Ada")
    expect(told).to_have_class(re.compile("hidden"))


@pytest.mark.parametrize("answer", [None, {"status": 503, "headers": {"Refine-Page": "1"}}])
def test_a_page_that_cannot_refresh_says_since_when_until_it_can(
    desk: Page, agents: list[Agent], answer: dict[str, Any] | None
) -> None:
    page = opened(desk, "/audit")
    page.route("**/audit", lambda route: route.fulfill(**answer) if answer else route.abort())

    page.clock.run_for(IDLE_MS)

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text(re.compile(r"Not refreshed since \d+:\d\d:\d\d"))
    expect(heading(page, "Audit")).to_be_visible()
    page.unroute("**/audit")
    page.clock.run_for(IDLE_MS)
    expect(alert).to_be_hidden()


def test_without_script_pages_are_plain(
    browser: Browser, admin: User, agents: list[Agent], site: str
) -> None:
    fail_session_of(agents[0])
    with browser.new_context(base_url=site, java_script_enabled=False) as context:
        page = context.new_page()
        begin_signed_in(page, admin, site)

        button(page, "Acknowledge Ada").click()

        expect(page.get_by_role("status")).to_contain_text("acknowledged")
        page.get_by_role("link", name="Refresh").click()
        expect(heading(page, "Overview")).to_be_visible()
        expect(page.locator("meta[http-equiv=refresh]")).to_have_count(0)
