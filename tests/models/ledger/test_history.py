"""The token mass over time, as the records tell it."""

from datetime import UTC, datetime, timedelta

from refine.extensions import db
from refine.models import RefinementSession
from refine.models.ledger.history import effect_tokens, masses
from tests import editing, factories

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


def remembered(owner, *hours):
    """Memories of one to three tokens, saved at these hours."""
    for number, hour in enumerate(hours):
        owner.ledger.remember(f"{number} letters", "core", at=NOW.replace(hour=hour))


def drawn(agent, since=4, until=12):
    found = masses(agent.id, NOW.replace(hour=since), NOW.replace(hour=until))
    return [(mass.at.hour, mass.tokens) for mass in found]


def test_the_masses_come_from_the_agents_own_records(app):
    agent, other = factories.agent("four"), factories.agent("four")
    remembered(agent, 5, 7, 9)
    remembered(other, 6)

    assert drawn(agent) == [(4, 0), (5, 4), (7, 7), (9, 10)]
    assert drawn(factories.agent("four")) == []


def test_the_masses_begin_with_the_one_at_the_beginning(app):
    agent = factories.agent("four")
    remembered(agent, 5, 7, 9)

    assert drawn(agent, since=8) == [(8, 7), (9, 10)]
    assert drawn(agent, since=9) == [(9, 10)]
    assert drawn(agent, until=8) == [(4, 0), (5, 4), (7, 7)]


def test_plots_evenly_spaced_records_and_all_notable_ones(app):
    agent = factories.agent("four")
    for minute in range(5):
        agent.ledger.remember(f"{minute} letters", "core", at=NOW.replace(minute=minute))
    discarded = agent.ledger.remember("to be discarded", "core", at=NOW.replace(minute=5))[0]
    discarded.discard(at=NOW.replace(minute=6))
    agent.ledger.remember("the last one", "core", at=NOW.replace(minute=7))

    found = masses(agent.id, NOW - timedelta(days=30), NOW + timedelta(days=30))

    assert [mass.at.minute for mass in found] == [0, 0, 6, 7]
    assert [mass.action for mass in found] == [
        "",
        "memory_saved",
        "memory_discarded",
        "memory_saved",
    ]


def test_a_records_mass_difference_is_that_of_its_memories(app):
    agent = factories.agent("letters letters.", "letters letters!")
    session = RefinementSession.start(agent)
    first, second = db.session.scalars(agent.ledger.core()).all()

    editing.consolidate(session, [first.id, second.id], "letters!")

    (record,) = [each for each in factories.records(agent) if each.action.endswith("consolidate")]
    assert effect_tokens(record.data) == 2 - 4 - 4
