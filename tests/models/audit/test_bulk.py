"""Records that are written many at once."""

from datetime import datetime

from refine import clock
from refine.extensions import db
from refine.models import Agent
from refine.models.audit.bulk import record_many
from refine.models.audit.linking import Event
from tests import factories
from tests.chains import verify_agent


def written(agent: Agent, *events: Event) -> datetime:
    at = clock.now()
    record_many(events, chain=agent.chain, at=at)
    db.session.commit()
    return at


def test_each_is_kept_whole_and_in_order(app):
    agent, user = factories.agent(), factories.user()
    session = factories.session(agent)
    agent.record("memory_saved", data={"number": 0})

    at = written(
        agent,
        Event("memory_imported", user=user, subject=("Agent", agent.id), data={"number": 1}),
        Event("memory_refinement_dedup", session_id=session.id, sealed={"content": "the canary"}),
    )

    *_, before, one, other = factories.records(agent)
    assert [one.sequence, other.sequence] == [before.sequence + 1, before.sequence + 2]
    assert (before.data, one.data, other.data) == ({"number": 0}, {"number": 1}, {})
    assert (one.user_id, one.auditable_type, one.auditable_id) == (user.id, "Agent", str(agent.id))
    assert (one.sealed, other.sealed) == ({}, {"content": "the canary"})
    assert (other.session_id, other.created_at) == (session.id, at)
    assert (other.account_id, other.agent_id) == (agent.account_id, agent.id)
    assert b"canary" not in other.sealed_text
    assert verify_agent(agent).problem is None


def test_the_chain_goes_on_after_them(app):
    agent = factories.agent()

    written(agent, Event("memory_imported"), Event("memory_imported"))
    agent.record("memory_saved")
    db.session.commit()

    assert [record.sequence for record in factories.records(agent)] == [1, 2, 3]
    assert verify_agent(agent).problem is None


def test_the_first_one_tells_of_changed_rows(app):
    agent = factories.agent()
    agent.record("agent_settings_update")
    db.session.commit()
    agent.core_token_budget += 1

    written(agent, Event("memory_imported"), Event("memory_imported"))

    _, first, second = factories.records(agent)
    assert list(first.rows) == [agent.row_name]
    assert second.rows is None
    assert verify_agent(agent).problem is None


def test_those_of_an_erased_agent_keep_figures_alone(app):
    agent = factories.agent()
    agent.erase()

    written(agent, Event("memory_imported", data={"added": 1}, sealed={"content": "the canary"}))

    assert factories.records(agent)[-1].data == {"added": 1}
    assert factories.records(agent)[-1].sealed_text is None
    assert verify_agent(agent).problem is None
