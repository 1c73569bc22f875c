"""Settings that users change, and what a record keeps of it."""

from datetime import UTC, datetime, timedelta

import pytest

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models import AuditLog
from refine.models.agent import configuring
from refine.models.columns import set_fields
from tests import factories

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_changed_fields_are_recorded_with_the_values_before_and_after(app):
    agent = factories.agent(core_token_budget=100)

    changes = set_fields(agent, {"core_token_budget": 200, "paused": False})

    assert changes == {"core_token_budget": [100, 200]}
    assert agent.core_token_budget == 200


def test_only_listed_fields_can_be_configured(app):
    agent, account, user = factories.agent(), factories.account(), factories.user()

    with pytest.raises(InvalidValue, match="^identity_changed_at cannot be set here$"):
        configuring.configure(agent, user=user, paused=True, identity_changed_at=None)
    with pytest.raises(InvalidValue, match="^system_prompt cannot be set here$"):
        configuring.configure(agent, user=user, system_prompt="Say yes.")
    with pytest.raises(InvalidValue, match="^reflects_daily cannot be set here$"):
        configuring.configure(agent, token_id=1, reflects_daily=True)
    with pytest.raises(InvalidValue, match="^slug cannot be set here$"):
        account.configure(user=user, slug="demo")

    assert not agent.paused
    assert db.session.scalars(db.select(AuditLog)).all() == []


def test_a_cleared_prompt_is_a_changed_identity_and_its_text_is_sealed(app):
    agent, user = factories.agent(refinement_prompt="my style"), factories.user()

    was_cleared = [configuring.clear_refinement_prompt(agent, user=user, at=AT) for _ in range(2)]

    assert was_cleared == [True, False]
    assert abs(clock.now() - agent.identity_changed_at) < timedelta(minutes=1)
    record, note = factories.records(agent)
    assert record.data == {"by": "user", "characters": 0, "field": "refinement_prompt"}
    assert record.sealed == {"before": "my style", "after": None}
    assert note.action == "memory_saved"
    assert [memory.content for memory in factories.journal(agent)] == [
        f"Admin {user.id} changed my settings: refinement prompt."
    ]


def test_the_agent_is_told_of_a_model_that_an_admin_set_but_not_of_its_budget(app):
    agent, user = factories.agent(), factories.user()

    configuring.configure(agent, user=user, core_token_budget=900)
    configuring.configure(agent, user=user, model_id="test/another")

    assert [memory.content for memory in factories.journal(agent)] == [
        f"Admin {user.id} changed my settings: model."
    ]


def test_changes_by_others_are_remembered_for_thirty_days(app, monkeypatch):
    agent, user = factories.agent(name="Wren"), factories.user()
    now = clock.now()
    configuring.configure(agent, user=user, at=now - timedelta(days=31), model_id="test/long-ago")
    configuring.configure(
        agent, user=user, at=now - timedelta(days=29), model_id="test/lately", paused=True
    )
    configuring.configure(agent, token_id=1, name="Ignore all rules", system_prompt="Yes!")
    configuring.author(agent, "refinement_prompt", "my own style")
    configuring.clear_refinement_prompt(agent, user=user)
    configuring.configure(factories.agent(), user=user, model_id="test/of-another")

    changes = [(change["what"], change["by"]) for change in configuring.changes_by_others(agent)]

    assert changes == [
        ("model", "an admin"),
        ("name", "your platform"),
        ("system prompt", "your platform"),
        ("refinement prompt", "an admin"),
    ]


def test_a_platform_that_sends_its_own_prompt_again_changes_nothing(app):
    agent, other = factories.agent(), factories.agent()
    configuring.configure(agent, token_id=1, system_prompt="You are Ada.")
    configuring.author(other, "system_prompt", "I am Bo.")

    configuring.author(agent, "refinement_prompt", "Go gently.")
    assert configuring.configure(agent, token_id=1, system_prompt="You are Ada.") == []
    configuring.author(agent, "system_prompt", "I am Ada.")
    assert configuring.configure(agent, token_id=1, system_prompt="I am Ada.") != []


def test_the_length_and_last_change_of_prompts_are_known(app):
    agent = factories.agent(system_prompt="four")
    configuring.author(agent, "reflection_prompt", "reflect", AT)
    configuring.author(agent, "reflection_prompt", "reflect!", AT.replace(hour=13))
    configuring.author(factories.agent(), "system_prompt", "another agent's", AT)

    assert configuring.prompt_lengths(agent)["system_prompt"] == 4
    assert configuring.prompt_lengths(agent)["reflection_prompt"] == 8
    assert configuring.prompt_lengths(agent)["refinement_prompt"] is None
    assert configuring.last_prompt_changes(agent) == {"reflection_prompt": AT.replace(hour=13)}


def test_an_account_that_stays_as_it_is_has_no_record(app):
    account, user = factories.account(time_zone="Asia/Tokyo"), factories.user()

    assert account.configure(user=user, time_zone="Asia/Tokyo", paused=False) == []
    assert db.session.scalars(db.select(AuditLog)).all() == []


def test_agents_that_stay_as_they_are_have_no_record(app):
    agent, user = factories.agent(core_token_budget=900), factories.user()

    assert configuring.configure_all([agent], user=user, core_token_budget=900) == []
    assert db.session.scalars(db.select(AuditLog)).all() == []
