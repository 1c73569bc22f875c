"""The search finds each class of leak, planted into a page or an action."""

from collections.abc import Callable
from typing import Any

import flask
import pytest

from refine.extensions import db
from refine.models import Agent, AgentMemory, SharedCount
from tests.guessing.driving import Pair
from tests.guessing.worlds import GUESS, Worlds

Leak = Callable[[flask.Response, AgentMemory], object]


def show_content(answer: flask.Response, memory: AgentMemory) -> None:
    answer.data += memory.content.encode()


def show_hash(answer: flask.Response, memory: AgentMemory) -> None:
    answer.data += memory.content_hash.encode()


def count_duplicates(answer: flask.Response, memory: AgentMemory) -> None:
    answer.data += b"1 already here" if memory.content == GUESS else b"0 already here"


def ask_once_more(answer: flask.Response, memory: AgentMemory) -> None:
    if memory.content == GUESS:
        db.session.execute(db.select(1))


def note_duplicate(answer: flask.Response, memory: AgentMemory) -> None:
    SharedCount.add([f"duplicate {memory.content == GUESS}"])
    db.session.commit()


def plant(monkeypatch: pytest.MonkeyPatch, worlds: Worlds, endpoint: str, leak: Leak) -> None:
    """Let a view leak something about the newest memory of an agent."""
    for side in worlds.sides:
        view = side.app.view_functions[endpoint]

        def leaking(agent_id: int, view: Any = view) -> flask.Response:
            answer = flask.make_response(view(agent_id))
            agent = db.session.get_one(Agent, agent_id)
            newest = agent.ledger.core().order_by(None).order_by(AgentMemory.id.desc()).limit(1)
            leak(answer, db.session.scalars(newest).one())
            return answer

        monkeypatch.setitem(side.app.view_functions, endpoint, leaking)


@pytest.mark.parametrize(
    ("leak", "found"),
    [
        (show_content, {"body", "shows what the agent keeps"}),
        (show_hash, {"body"}),
        (count_duplicates, {"body"}),
        (ask_once_more, {"statements"}),
    ],
)
def test_finds_leaks_of_pages(worlds, monkeypatch, leak, found):
    plant(monkeypatch, worlds, "agent.page", leak)
    pair = Pair.of_browsers(worlds, "admin")

    pair.ask("GET", f"/agents/{worlds.things.agents[0]}")

    assert {each.what for each in pair.differences} >= found


def test_finds_leaks_stored_by_actions(worlds, monkeypatch):
    plant(monkeypatch, worlds, "agent.refine_now", note_duplicate)
    pair = Pair.of_browsers(worlds, "admin")

    pair.submit(f"/agents/{worlds.things.agents[0]}/sessions", {})

    assert {each.what for each in pair.differences} == {"rows"}
