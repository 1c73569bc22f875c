"""Asking an agent, reading what it grants, and what is left in the browser afterwards."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from refine.extensions import db
from refine.models import AccessGrant, Agent, User
from tests import factories, sql
from tests.browser.visiting import heading, sign_in, state

PURPOSE = "to see why its last session declined"
CANARY = "the goldfinch sings at dawn"


@pytest.fixture
def agent(admin: User) -> Agent:
    made: Agent = factories.agent(
        CANARY, "beans by the fence", account=admin.account, name="Wren", model_id="test/model"
    )
    db.session.commit()
    return made


@pytest.fixture
def grant(agent: Agent, admin: User) -> AccessGrant:
    made = factories.live_grant(agent, admin, purpose=PURPOSE, duration_minutes=30)
    db.session.commit()
    return made


def reading(page: Page, agent: Agent) -> None:
    page.goto(f"/agents/{agent.id}/ledger")
    expect(page.get_by_text(CANARY)).to_be_visible()


def ends_in(seconds: float) -> None:
    sql.rewrite(
        "UPDATE access_grants SET expires_at = clock_timestamp() "
        f"+ interval '{seconds} seconds', granted_at = clock_timestamp()"
    )


def kept_in_browser(page: Page) -> str:
    """All that the page's origin keeps in the browser, as far as a page can tell."""
    return str(
        page.evaluate(
            """async () => {
              const kept = [JSON.stringify(localStorage), JSON.stringify(sessionStorage)];
              kept.push(JSON.stringify(await indexedDB.databases()));
              for (const name of await caches.keys())
                for (const request of await (await caches.open(name)).keys()) {
                  kept.push(request.url);
                  kept.push(await (await caches.match(request)).text());
                }
              kept.push(document.documentElement.outerHTML, document.cookie);
              return kept.join("\\n");
            }"""
        )
    )


@pytest.mark.slow
def test_an_open_page_redirects_when_access_expires(
    desk: Page, agent: Agent, grant: AccessGrant
) -> None:
    ends_in(4)
    reading(desk, agent)

    expect(state(desk, "ended")).to_be_visible()

    expect(desk.get_by_text(CANARY)).to_have_count(0)
    expect(desk.get_by_text("time limit reached")).to_be_visible()
    desk.go_back()
    desk.wait_for_load_state()
    expect(desk.get_by_text(CANARY)).to_have_count(0)


def test_an_open_page_redirects_without_javascript(
    new_context: Callable[..., object], admin: User, agent: Agent, grant: AccessGrant
) -> None:
    page: Page = new_context(java_script_enabled=False).new_page()  # type: ignore[attr-defined]
    sign_in(page, admin.email)
    ends_in(4)
    reading(page, agent)

    expect(state(page, "ended")).to_be_visible()
    expect(page.get_by_text(CANARY)).to_have_count(0)


def test_ending_access_in_one_tab_redirects_the_others(
    desk: Page, agent: Agent, grant: AccessGrant
) -> None:
    other = desk.context.new_page()
    reading(other, agent)

    desk.goto("/")
    desk.get_by_role("button", name="End access to Wren").click()

    expect(state(other, "ended")).to_be_visible()
    expect(other.get_by_text(CANARY)).to_have_count(0)


@pytest.mark.slow
def test_the_back_button_shows_no_content_after_access_ended(
    desk: Page, agent: Agent, grant: AccessGrant
) -> None:
    reading(desk, agent)
    desk.goto("/agents")
    desk.get_by_role("button", name="End access to Wren").click()
    expect(state(desk, "ended")).to_be_visible()

    for _ in range(2):
        desk.go_back()
        desk.wait_for_load_state()
        expect(desk.get_by_text(CANARY)).to_have_count(0)

    expect(heading(desk, "Wren")).to_be_visible()
    expect(desk.get_by_text("Contents are sealed")).to_be_visible()


def test_the_back_forward_cache_holds_no_content(
    desk: Page, agent: Agent, grant: AccessGrant
) -> None:
    reading(desk, agent)

    desk.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")

    assert CANARY not in desk.content()


def test_the_browser_stores_no_content_after_access_ended(
    desk: Page, agent: Agent, grant: AccessGrant
) -> None:
    reading(desk, agent)
    desk.get_by_role("button", name="End access to Wren").click()
    expect(state(desk, "ended")).to_be_visible()

    kept = kept_in_browser(desk)

    assert CANARY not in kept
    from_cache = "async (path) => (await fetch(path, {cache: 'force-cache'})).text()"
    assert CANARY not in desk.evaluate(from_cache, f"/agents/{agent.id}/ledger")
