"""Every day: finding an agent, its memories, an undo, and reading what it keeps by its leave."""

import re

import pytest

from refine.extensions import db
from refine.models import Agent
from refine.tools import RefinementTool
from tests import factories
from tests.browser.visiting import kept, state
from tests.browser.walks.visitor import Visitor
from tests.scripted_model import ScriptedModel


def test_a_memory_is_made_constitutional_and_its_record_read(at_work: Visitor, wren: Agent) -> None:
    first = kept(wren)[0]

    at_work.go(f"/agents/{wren.id}")
    at_work.follow("Memories")
    at_work.press(f"Make memory #{first} constitutional")
    at_work.sees(f"#{first} is now constitutional")
    at_work.follow(f"#{first}")
    at_work.arrives_at(re.compile(f"#{first}"))
    at_work.sees("constitutional")


@pytest.mark.slow
def test_a_session_is_undone(at_work: Visitor, wren: Agent) -> None:
    before = kept(wren)
    tool = RefinementTool(factories.session(wren))
    tool.execute("delete", id=before[0])
    tool.execute("complete", summary="it is tidy")

    at_work.menu("Sessions")
    at_work.follow(re.compile("Wren"))
    at_work.follow(re.compile("ago|Nov|202"))
    at_work.arrives_at("Session of Wren")
    at_work.follow("Undo…")
    at_work.sees("1 brought back")
    assert kept(wren) == before[1:]
    at_work.press("Undo this session")

    at_work.sees("Undone: 1 brought back")
    assert kept(wren) == before


@pytest.mark.slow
def test_memories_are_read_by_the_agents_leave(
    at_work: Visitor, wren: Agent, model: ScriptedModel, worker: None
) -> None:
    model.say("YES, look at what you need.")
    wren.ledger.remember("the goldfinch sings at dawn", "core")
    db.session.commit()

    at_work.go(f"/agents/{wren.id}")
    at_work.follow("Read memories…")
    at_work.choose("Reason", "a session failed")
    at_work.fill("Purpose", "to see why its last session declined")
    at_work.choose("Duration", "30 minutes")
    at_work.press("Ask Wren")
    at_work.waits_for(state(at_work.page, "granted"))
    at_work.follow("Read memories")
    at_work.sees("the goldfinch sings at dawn")
    at_work.press("End access to Wren")

    at_work.waits_for(state(at_work.page, "ended"))
    at_work.go(f"/agents/{wren.id}/ledger")
    at_work.does_not_see("goldfinch")


@pytest.mark.slow
def test_one_session_is_read_for_less_time_than_asked_and_nothing_else(
    at_work: Visitor, wren: Agent, model: ScriptedModel, worker: None
) -> None:
    model.say("YES\nONLY: 15 minutes")
    ids = [wren.ledger.remember(text, "core")[0].id for text in ("red roses", "white roses")]
    wren.ledger.remember("beans by the fence", "core")
    session = factories.session(wren)
    tool = RefinementTool(session)
    tool.execute("consolidate", ids=ids, content="red and white roses")
    tool.execute("complete", summary="the roses stand together")

    at_work.go(f"/sessions/{session.id}")
    at_work.follow("Read its changes…")
    at_work.choose("Reason", "a session failed")
    at_work.fill("Purpose", "to see what its last session merged")
    at_work.choose("Duration", "60 minutes")
    at_work.press("Ask Wren")
    at_work.waits_for(state(at_work.page, "granted"))
    at_work.sees("Wren granted the changes of one session for 15 minutes")
    at_work.follow("Read the changes of one session")

    at_work.arrives_at("Session of Wren")
    at_work.sees("white roses")
    at_work.sees("the roses stand together")
    at_work.go(f"/agents/{wren.id}/ledger")
    at_work.sees("Contents are sealed")
    at_work.does_not_see("beans by the fence")
