"""Stopping a session, and undoing what one did."""

import threading

import pytest
from playwright.sync_api import Page, expect

from refine.extensions import db
from refine.models import Agent, RefinementSession, User
from refine.tools import RefinementTool
from tests import factories
from tests.browser.visiting import button, kept, rows, state
from tests.scripted_model import ScriptedModel


@pytest.fixture
def agent(admin: User) -> Agent:
    contents = [factories.text_of(25) for _ in range(20)]
    made: Agent = factories.agent(*contents, account=admin.account, name="Wren")
    db.session.commit()
    return made


def tidied(agent: Agent) -> RefinementSession:
    """A session that discarded the agent's first memory, and made the second constitutional."""
    first, second, *_ = kept(agent)
    session = factories.session(agent)
    tool = RefinementTool(session)
    tool.execute("delete", id=first)
    tool.execute("protect", id=second)
    tool.execute("complete", summary="it is tidy")
    return session


@pytest.mark.usefixtures("worker")
def test_a_stopped_session_keeps_its_changes(
    desk: Page, agent: Agent, model: ScriptedModel
) -> None:
    first, second, *others = kept(agent)
    was_stopped = threading.Event()
    model.say("YES").call("delete", id=first)
    model.call("delete", id=second).meanwhile(lambda: was_stopped.wait(30))

    desk.goto(f"/agents/{agent.id}")
    button(desk, "Refine now").click()
    expect(rows(desk, "Steps").last).to_contain_text("memory discarded")
    button(desk, "Stop").click()
    expect(desk.get_by_role("status")).to_contain_text("Stop requested")
    expect(button(desk, "Stop")).to_be_disabled()
    was_stopped.set()

    expect(state(desk, "incomplete")).to_be_visible()
    expect(desk.locator(".outcome")).to_contain_text("Changes made so far are kept")
    assert kept(agent) == [second, *others]


@pytest.mark.usefixtures("worker")
def test_the_model_that_answered_can_be_set_from_the_failed_session(
    desk: Page, agent: Agent, model: ScriptedModel
) -> None:
    model.catalogue = [{"id": name} for name in ("test/model", "test/model-2")]
    model.say("YES", model="test/model-2")
    desk.goto(f"/agents/{agent.id}")
    button(desk, "Refine now").click()
    expect(desk.locator(".outcome")).to_contain_text("Another model answered")

    desk.get_by_role("link", name=f"settings of {agent.name}").click()
    button(desk, "Set test/model-2").click()

    expect(desk.get_by_role("status")).to_contain_text("Saved.")
    expect(desk.get_by_label("Model")).to_have_value("test/model-2")
    expect(button(desk, "Set test/model-2")).to_have_count(0)


@pytest.mark.slow
def test_an_undo_shows_its_effect_before_and_its_result_after(desk: Page, agent: Agent) -> None:
    before = kept(agent)
    session = tidied(agent)

    desk.goto(f"/sessions/{session.id}")
    desk.get_by_role("link", name="Undo…").click()
    expect(desk.locator(".card")).to_contain_text(
        "1 brought back, 1 no longer constitutional; 19 → 20 memories, 475 → 500 tokens"
    )
    assert kept(agent) == before[1:]
    button(desk, "Undo this session").click()

    expect(desk.get_by_role("status")).to_contain_text("Undone: 1 brought back")
    expect(state(desk, "undone")).to_be_visible()
    expect(desk.get_by_role("link", name="Undo…")).to_have_count(0)
    assert kept(agent) == before


def test_an_undo_can_be_cancelled(desk: Page, agent: Agent) -> None:
    session = tidied(agent)
    after = kept(agent)

    desk.goto(f"/sessions/{session.id}/undo")
    desk.get_by_role("link", name="Cancel").click()

    expect(state(desk, "completed")).to_be_visible()
    assert kept(agent) == after


def test_a_conflicting_undo_names_the_conflict_and_offers_the_wider_undo(
    desk: Page, agent: Agent
) -> None:
    before = kept(agent)
    session = tidied(agent)
    desk.goto(f"/agents/{agent.id}/ledger")
    button(desk, f"Remove the constitutional flag of memory #{before[1]}").click()
    expect(desk.get_by_role("status")).to_contain_text("no longer constitutional")

    desk.goto(f"/sessions/{session.id}")
    desk.get_by_role("link", name="Undo…").click()
    in_the_way = desk.get_by_role("alert").filter(has_text="Conflict")
    expect(in_the_way).to_contain_text(f"Memory #{before[1]}")
    expect(in_the_way).to_contain_text("constitutional flag changed")
    assert kept(agent) == before[1:]
    desk.get_by_role("link", name="Undo this session and everything after it…").click()
    expect(desk.locator(".card")).to_contain_text("along with every flag change and restore since")
    button(desk, "Undo this session and everything after it").click()

    expect(desk.get_by_role("status")).to_contain_text("Undone: 1 brought back")
    assert kept(agent) == before
    desk.get_by_role("link", name="Sessions", exact=True).first.click()
    expect(rows(desk, "Sessions, newest first")).to_contain_text("undone")


def test_an_undo_overtaken_by_a_change_does_nothing_and_says_why(desk: Page, agent: Agent) -> None:
    before = kept(agent)
    session = tidied(agent)
    desk.goto(f"/sessions/{session.id}/undo")
    next(m for m in db.session.scalars(agent.ledger.core())).set_constitutional(False)
    db.session.commit()

    button(desk, "Undo this session").click()

    expect(desk.get_by_role("alert").filter(has_text="Conflict")).to_be_visible()
    assert kept(agent) == before[1:]
