"""The pairs of memories that a session is told to look at."""

import re

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent, AgentMemory, RefinementSession
from refine.refinement.prompting import MAX_PAIRS, brief, pairs_to_look_at
from tests import factories

GEESE = "Mira counts the geese above the frozen lake every morning before school"
CLOCK = "Tomasz repaired the clock in the kitchen with nothing but a hairpin"
LOOM = "Delphine sold her bicycle in the spring and bought a loom instead"


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent(GEESE, CLOCK, f"{GEESE}!", LOOM)


def ids_of(agent: Agent) -> list[int]:
    return [memory.id for memory in db.session.scalars(agent.ledger.core())]


def told(session: RefinementSession) -> list[tuple[int, ...]]:
    """The pairs that the brief lists, as it writes them."""
    lines = re.findall(r"^#(\d+) and #(\d+): (\d+)% alike$", brief(session), re.MULTILINE)
    return [tuple(map(int, line)) for line in lines]


def test_the_brief_lists_pairs_by_id_and_likeness_and_calls_them_a_hint(agent: Agent) -> None:
    geese, _, same_geese, _ = ids_of(agent)

    session = factories.session(agent)

    assert told(session) == [(geese, same_geese, 100)]
    assert "treat them only as hints" in brief(session)
    assert "Memories that look alike are often different moments" in brief(session)
    assert "geese" not in brief(session)


def test_the_number_of_listed_pairs_is_limited(app: Flask) -> None:
    agent = factories.agent(*(f"On day {day} {GEESE}" for day in range(60)))

    assert len(told(factories.session(agent))) == MAX_PAIRS


def test_two_locked_memories_make_no_pair_and_one_locked_does(app: Flask) -> None:
    agent = factories.agent(CLOCK, f"{CLOCK}!")
    factories.memory(agent, GEESE, constitutional=True)
    factories.memory(agent, f"{GEESE}!", tags=["voice"])
    clock, same_clock, _, _ = ids_of(agent)
    db.session.scalars(agent.ledger.core()).first().constitutional = True

    assert told(factories.session(agent)) == [(clock, same_clock, 100)]


def test_memories_that_no_session_can_change_are_left_out(agent: Agent) -> None:
    _, clock, same_geese, _ = ids_of(agent)
    session = factories.session(agent)

    factories.memory(agent, f"{CLOCK}!")  # saved since the snapshot
    db.session.get_one(AgentMemory, same_geese).discard()

    assert told(session) == []


def test_pairs_that_are_shown_come_before_those_to_be_searched(agent: Agent) -> None:
    factories.memory(agent, f"{CLOCK}, she says")
    geese, clock, same_geese, _, same_clock = ids_of(agent)
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    session.take_snapshot(frozenset([clock, same_clock, geese]))
    db.session.commit()

    first, second = pairs_to_look_at(session)

    assert first[:2] == (clock, same_clock)
    assert second == (geese, same_geese, 100)
    assert first.likeness < second.likeness


def test_a_batch_full_of_pairs_names_no_others(app: Flask) -> None:
    agent = factories.agent(*(f"On day {day} {GEESE}" for day in range(40)), CLOCK, f"{CLOCK}!")
    *days, clock, same_clock = ids_of(agent)
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    session.take_snapshot(frozenset([*days, clock]))
    db.session.commit()

    pairs = pairs_to_look_at(session)

    assert len(pairs) == MAX_PAIRS
    assert same_clock not in {pair.other_id for pair in pairs}
