"""The groups of memories that a session is told to look at."""

import re

import pytest
from flask import Flask

from refine.extensions import db
from refine.models import Agent, AgentMemory, RefinementSession
from refine.refinement.prompting import MAX_GROUPS, brief, groups_to_look_at
from tests import factories

GEESE = "Mira counts the geese above the frozen lake every morning before school"
CLOCK = "Tomasz repaired the clock in the kitchen with nothing but a hairpin"
LOOM = "Delphine sold her bicycle in the spring and bought a loom instead"


@pytest.fixture
def agent(app: Flask) -> Agent:
    return factories.agent(GEESE, CLOCK, f"{GEESE}!", LOOM)


def ids_of(agent: Agent) -> list[int]:
    return [memory.id for memory in db.session.scalars(agent.ledger.core())]


def hinted(session: RefinementSession) -> list[tuple[int, ...]]:
    return [group.ids for group in groups_to_look_at(session)]


def session_shown(agent: Agent, *ids: int) -> RefinementSession:
    """A session whose agent was shown only these memories in full."""
    session = RefinementSession.queue(agent, "manual")
    session.claim()
    session.take_snapshot(frozenset(ids))
    db.session.commit()
    return session


def test_the_brief_lists_groups_by_ids_and_likeness_alone_and_calls_them_a_hint(agent):
    factories.memory(agent, f"{CLOCK}.")
    factories.memory(agent, f"Really: {CLOCK}")
    geese, clock, same_geese, _, *clocks = ids_of(agent)
    session = factories.session(agent)

    said = brief(session, groups_to_look_at(session))

    listed = re.findall(r"^#\d.*alike$", said, re.MULTILINE)
    assert listed[0] == f"#{geese} and #{same_geese}: 100% alike"
    assert re.fullmatch(rf"#{clock}, #{clocks[0]} and #{clocks[1]}: \d\d% alike", listed[1])
    assert len(listed) == 2
    assert "treat them only as hints" in said
    assert "Memories that look alike are often different moments" in said
    assert not re.search("geese|clock|hairpin", said)


def test_the_number_of_listed_groups_is_limited(app):
    names = (f"{first}{last}" for first in "abcde" for last in "vwxyz")
    agent = factories.agent(
        *(
            text
            for name in names
            for text in (f"{name * 3} {name * 2}", f"so {name * 3} {name * 2}")
        )
    )

    assert len(hinted(factories.session(agent))) == MAX_GROUPS


def test_locked_memories_alone_make_no_group(app):
    agent = factories.agent(CLOCK, f"{CLOCK}!")
    factories.memory(agent, GEESE, constitutional=True)
    factories.memory(agent, f"{GEESE}!", tags=["voice"])
    clock, same_clock, _, _ = ids_of(agent)
    db.session.scalars(agent.ledger.core()).first().constitutional = True

    assert hinted(factories.session(agent)) == [(clock, same_clock)]


def test_memories_outside_the_snapshot_are_left_out(agent):
    _, _, same_geese, _ = ids_of(agent)
    session = factories.session(agent)

    factories.memory(agent, f"{CLOCK}!")  # saved since the snapshot
    db.session.get_one(AgentMemory, same_geese).discard()

    assert hinted(session) == []


def test_groups_shown_in_full_come_first(agent):
    factories.memory(agent, f"{CLOCK}, she says")
    geese, clock, same_geese, _, same_clock = ids_of(agent)

    first, second = groups_to_look_at(session_shown(agent, clock, same_clock, geese))

    assert (first.ids, second.ids) == ((clock, same_clock), (geese, same_geese))
    assert first.likeness < second.likeness


# -- which rest -----------------------------------------------------------------------------------


def test_a_group_that_a_session_left_alone_rests_and_is_shown_again(world):
    world.use(factories.agent(GEESE, CLOCK, f"{GEESE}!", LOOM, f"{CLOCK}, she says"))
    geese, clock, same_geese, _, same_clock = ids_of(world.agent)
    world.model.say("YES").call("delete", id=same_geese).call("complete", summary="One less.")
    for _ in range(2):
        world.model.say("YES").call("complete", summary="All is well.")

    sessions = [world.refine() for _ in range(3)]

    assert [session.hints for session in sessions] == [
        [[geese, same_geese], [clock, same_clock]],
        [],
        [[clock, same_clock]],
    ]
    assert f"#{clock} and #{same_clock}: " in world.asked(-1)[3]["content"]


def test_a_session_without_consent_shows_no_hint_and_lets_none_rest(world):
    world.use(factories.agent(GEESE, f"{GEESE}!"))
    for _ in range(2):
        world.model.say("NO")
    world.model.say("YES").call("complete", summary="All is well.")

    sessions = [world.refine() for _ in range(3)]

    assert [session.hints for session in sessions] == [[], [], [ids_of(world.agent)]]
