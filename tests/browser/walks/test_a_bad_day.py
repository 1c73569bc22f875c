"""A bad day: a failing provider, a session that must stop, a token that leaked, a forged row."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask

from refine.extensions import db
from refine.jobs.verifying import verify_slice
from refine.models import Agent, WrappedKey
from tests import factories, sql
from tests.browser.visiting import button, kept, rows, state
from tests.browser.walks.visitor import Visitor
from tests.scripted_model import ScriptedModel


@pytest.mark.slow
def test_failures_are_acknowledged_or_tried_again(
    at_work: Visitor, wren: Agent, model: ScriptedModel, worker: None
) -> None:
    model.say("YES").call("complete", summary="it is tidy")
    tern = factories.agent("it rains", account=wren.account, name="Tern")
    for agent, kind in ((wren, "connection"), (tern, "timeout")):
        factories.session(agent).give_up("the provider cannot be reached", kind)
    db.session.commit()

    at_work.menu("Overview")
    at_work.sees("2 agents need attention")
    at_work.press("Acknowledge Tern")
    at_work.sees("1 agent with a failed session")
    at_work.sees("The provider cannot be reached")
    at_work.follow("Session")
    at_work.arrives_at("Session of Wren")
    at_work.press("Retry")
    at_work.waits_for(state(at_work.page, "completed"))

    at_work.menu("Overview")
    at_work.does_not_see("with a failed session")


def test_a_session_is_stopped_and_the_agent_paused(
    at_work: Visitor, wren: Agent, model: ScriptedModel, worker: None
) -> None:
    first, second, *others = kept(wren)
    was_stopped = threading.Event()
    model.say("YES").call("delete", id=first)
    model.call("delete", id=second).meanwhile(lambda: was_stopped.wait(30))

    at_work.go(f"/agents/{wren.id}")
    at_work.press("Refine now")
    at_work.waits_for(rows(at_work.page, "Steps").filter(has_text="memory discarded"))
    at_work.press("Stop")
    at_work.sees("Stop requested")
    was_stopped.set()
    at_work.waits_for(state(at_work.page, "incomplete"))
    at_work.follow("Wren")
    at_work.press("Pause")
    at_work.waits_for(button(at_work.page, "Resume"))

    assert kept(wren) == [second, *others]
    assert wren.paused


@pytest.mark.slow
def test_a_forged_row_is_named_and_acknowledged(at_work: Visitor, wren: Agent, app: Flask) -> None:
    WrappedKey.platform().created_at = datetime.now(UTC) - timedelta(days=1)
    db.session.commit()
    first = kept(wren)[0]
    sql.tamper(f"UPDATE agent_memories SET token_estimate = 9 WHERE id = {first}")
    verify_slice(datetime.now(UTC), time.monotonic() + 60)

    at_work.menu("Agents")
    at_work.does_not_see("Acknowledge failed verification")
    at_work.menu("Operations")
    at_work.sees("was changed in the database, not by Refine")
    at_work.follow(f"#{first}")
    at_work.arrives_at(f"Memory #{first}")
    at_work.sees("This memory was changed in the database, not by Refine.")
    at_work.menu("Operations")
    at_work.press("Acknowledge failed verification")

    at_work.sees("The alarm ends once a later verification finds nothing wrong")
