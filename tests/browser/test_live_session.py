"""A session's page while it runs: fresh by itself, silent once it ended, calm when disturbed.

The browser's clock is put forward where a test is about the time between two looks.
"""

import pytest
from playwright.sync_api import Page, expect

from refine.extensions import db
from refine.models import RefinementSession, User
from refine.tools import RefinementTool
from tests import factories
from tests.browser.visiting import button, rows, state

A_MINUTE_MS = 60_000


class Watched:
    """A running session, the page that shows it, and how often that page looked."""

    def __init__(self, page: Page, session: RefinementSession) -> None:
        self.page, self.session = page, session
        self.path = f"/sessions/{session.id}"
        self.looks = 0
        self._tool = RefinementTool(session)
        page.on("request", self._count)
        page.clock.install()

    def delete_one(self) -> None:
        memory = next(iter(db.session.scalars(self.session.agent.ledger.core())))
        assert self._tool.execute("delete", id=memory.id)["type"] == "deleted"

    def complete(self) -> None:
        result = self._tool.execute("complete", summary="it is tidy")
        assert result["type"] == "refinement_complete"

    def looks_within_a_minute(self) -> int:
        before = self.looks
        self.page.clock.run_for(A_MINUTE_MS)
        return self.looks - before

    def _count(self, request: object) -> None:
        headers = getattr(request, "headers", {})
        self.looks += headers.get("hx-source") == "main#main"


@pytest.fixture
def watched(desk: Page, admin: User) -> Watched:
    agent = factories.agent(*(factories.text_of(25) for _ in range(20)), account=admin.account)
    seen = Watched(desk, factories.session(agent))
    desk.goto(seen.path)
    expect(state(desk, "running")).to_be_visible()
    return seen


@pytest.mark.slow
def test_every_step_appears_without_reloading(desk: Page, watched: Watched) -> None:
    desk.evaluate("window.isTheSamePage = true")

    watched.delete_one()

    expect(rows(desk, "Steps").last).to_contain_text("memory discarded")
    expect(desk.locator(".gauge")).to_contain_text("25 of 125 removable tokens removed")
    expect(desk.locator(".gauge")).to_contain_text("100 left")

    watched.complete()

    expect(state(desk, "completed")).to_be_visible()
    expect(desk.get_by_role("heading", name="25 tokens fewer in every prompt (5%)")).to_be_visible()
    expect(button(desk, "Stop")).to_be_disabled()
    expect(button(desk, "Pause updates")).to_have_count(0)
    assert watched.looks_within_a_minute() == 0
    assert desk.evaluate("window.isTheSamePage")


def test_updates_can_be_paused_and_resumed(desk: Page, watched: Watched) -> None:
    button(desk, "Pause updates").click()
    watched.delete_one()

    looked = watched.looks_within_a_minute()

    assert looked == 0
    expect(rows(desk, "Steps")).to_have_count(1)

    button(desk, "Resume updates").click()

    expect(rows(desk, "Steps").last).to_contain_text("memory discarded")
    expect(button(desk, "Pause updates")).to_be_visible()


# -- the picture, once it ended --------------------------------------------------------------------


@pytest.mark.slow
def test_the_picture_plays_once_can_be_ended_and_stands_still_for_who_prefers_it(
    watched: Watched,
) -> None:
    page, playing = (
        watched.page,
        "document.querySelector('.picture').getAnimations({subtree: true})",
    )
    watched.delete_one()
    watched.complete()
    page.goto(watched.path)

    expect(button(page, "Show the end")).to_be_visible()
    assert page.evaluate(f"{playing}.length") > 0
    button(page, "Show the end").click()
    expect(button(page, "Replay")).to_be_visible()
    assert page.evaluate(f"{playing}.length") == 0
    button(page, "Replay").click()
    page.evaluate(f"{playing}.forEach(each => each.finish())")
    expect(button(page, "Replay")).to_be_visible()
    page.goto(watched.path)
    assert page.evaluate(f"{playing}.length") == 0
    page.emulate_media(reduced_motion="reduce")
    page.goto(watched.path)
    expect(page.get_by_role("heading", name="25 tokens fewer in every prompt (5%)")).to_be_visible()
    assert page.evaluate(f"{playing}.length") == 0
    expect(button(page, "Replay")).to_be_hidden()
