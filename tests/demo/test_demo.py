"""The demo account, loaded and run: every agent ends as intended."""

import json
from pathlib import Path

import pytest
from flask import Flask

from refine import demo, settings
from refine.extensions import db
from refine.models import Account, Agent, AgentMemory, RefinementSession
from refine.models.integrity import verify_all
from refine.refinement.loop import Observer, SessionEvent, refine
from tests import factories
from tests.demo.picture import PICTURE, picture_of_wren

FILE = json.loads((Path(demo.__file__).parent / "agents.json").read_text(encoding="utf-8"))
ENDINGS = {
    "Wren": "completed",
    "Halyard": "completed",
    "Fathom": "completed",
    "Trema": "declined",
    "Cairn": "skipped",
    "Loam": "completed",
    "Petrel": "rolled_back",
    "Crumb": "skipped",
}


@pytest.fixture
def loaded(app: Flask) -> Account:
    account = demo.load_into_empty_database()
    db.session.commit()
    assert account is not None
    return account


def refined(name: str, observe: Observer = lambda _: None) -> RefinementSession:
    session = RefinementSession.queue(Agent.named(name), "cli")
    db.session.commit()
    ended = refine(session.id, settings.current(), observe=observe)
    assert ended is not None
    return ended


def test_creates_every_agent_of_the_file(loaded: Account) -> None:
    agents = db.session.scalars(db.select(Agent)).all()

    held = {
        agent.name: (
            agent.account_id,
            agent.model_id,
            len(db.session.scalars(db.select(AgentMemory).filter_by(agent_id=agent.id)).all()),
        )
        for agent in agents
    }

    assert held == {
        described["name"]: (loaded.id, described["model_id"], len(described["memories"]))
        for described in FILE["agents"]
    }
    assert held.keys() == ENDINGS.keys()


def test_loads_nothing_if_there_is_an_account(app: Flask) -> None:
    factories.account()
    db.session.commit()

    account = demo.load_into_empty_database()

    assert account is None
    assert db.session.scalars(db.select(Agent)).all() == []


@pytest.mark.parametrize(("name", "status"), ENDINGS.items())
def test_every_agent_ends_as_intended(loaded: Account, name: str, status: str) -> None:
    session = refined(name)

    assert (session.status, session.error_kind) == (status, None)
    db.session.rollback()
    assert [chain.problem for chain in verify_all() if chain.problem is not None] == []


def test_wren_gets_within_its_budget_by_merging_plain_repeats(loaded: Account) -> None:
    wren = Agent.named("Wren")
    before = {memory.id: memory for memory in db.session.scalars(wren.ledger.core())}

    session = refined("Wren")

    kept = {memory.id for memory in db.session.scalars(wren.ledger.core())}
    gone = [memory for id_, memory in before.items() if id_ not in kept]
    assert not wren.is_over_budget
    assert session.stats["consolidated"] > 0
    assert session.stats["deleted"] == session.stats["updated"] == 0
    assert not any(memory.is_locked for memory in gone)
    for opening in ("Mr. Halloran asked about the radio", "Yusuf told me about the orchard"):
        similar = [id_ for id_, each in before.items() if each.content.startswith(opening)]
        assert len(similar) == 2
        assert kept.issuperset(similar)


def test_the_picture_in_the_readme_is_of_wren(app: Flask) -> None:
    assert PICTURE.read_text() == picture_of_wren(app), "it is out of date: run `make prompts`"


def test_petrel_is_refused_its_deletions_and_keeps_every_memory(loaded: Account) -> None:
    petrel = Agent.named("Petrel")
    before = [memory.state_digest for memory in db.session.scalars(petrel.ledger.core())]

    events: list[SessionEvent] = []
    session = refined("Petrel", events.append)

    results = [event.facts["result"] for event in events if event.kind == "tool_call"]
    after = [memory.state_digest for memory in db.session.scalars(petrel.ledger.core())]
    assert session.status == "rolled_back"
    assert after == before
    # what says something of its own is refused; what others carry goes, until it is too much
    assert results.count("error") >= 3
    assert results.count("deleted") >= 3
    assert results[-1] == "refinement_rolled_back"
