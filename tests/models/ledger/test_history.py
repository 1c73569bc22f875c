"""The token mass over time, as the records tell it."""

from datetime import UTC, datetime

from refine.extensions import db
from refine.models import RefinementSession
from refine.models.ledger.history import count_changes, effect_tokens, masses
from tests import editing, factories

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def test_the_masses_are_those_after_the_agents_own_last_records(app):
    agent, other = factories.agent("four"), factories.agent("four")
    for owner, count in ((agent, 3), (other, 1)):
        for n in range(count):
            owner.ledger.remember(f"{n} letters", "core", at=NOW.replace(hour=n))

    assert [mass.tokens for mass in masses(agent.id, NOW, 9)] == [1, 4, 7, 10]
    assert [mass.tokens for mass in masses(agent.id, NOW, 2)] == [4, 7, 10]
    assert [mass.at.hour for mass in masses(agent.id, NOW, 2)] == [1, 1, 2]
    assert masses(factories.agent().id, NOW, 9) == []


def test_a_records_mass_difference_is_that_of_its_memories(app):
    agent = factories.agent("letters letters.", "letters letters!")
    session = RefinementSession.start(agent)
    first, second = db.session.scalars(agent.ledger.core()).all()

    editing.consolidate(session, [first.id, second.id], "letters!")

    (record,) = [each for each in factories.records(agent) if each.action.endswith("consolidate")]
    assert effect_tokens(record.data) == 2 - 4 - 4


def test_changes_are_counted_by_agent_and_other_records_are_none(app):
    agent, other = factories.agent(), factories.agent()
    other.ledger.remember("a memory", "core")
    agent.author("refinement_prompt", "Go gently.")
    assert count_changes(agent.id) == 0

    agent.ledger.remember("a memory", "core")

    assert count_changes(agent.id) == 1
