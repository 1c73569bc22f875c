from datetime import UTC, datetime
from decimal import Decimal

import pytest

from refine.errors import Ambiguous, InvalidValue, NotFound
from refine.extensions import db
from refine.models import Agent, ApiToken, WrappedKey
from refine.models.agent import PROMPTS, configuring
from refine.prompts import default_prompt
from tests import factories, sql
from tests.models.cases import case

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)


# -- finding ---------------------------------------------------------------------------------------


def test_an_agent_is_found_by_name_or_id_and_the_id_goes_first(app):
    ada, twin, two = (factories.agent(name=name) for name in ("Ada", "Ada", "Ada Two"))
    factories.agent(name=str(ada.id))
    digits = factories.agent(name="00012345678901234567890")

    assert Agent.named("Ada Two") is two
    assert Agent.named(str(twin.id)) is twin
    assert Agent.named(str(ada.id)) is ada
    assert Agent.named(digits.name) is digits


def test_an_unknown_agent_is_not_found(app, subtests):
    factories.agent(name="Ada")

    for reference in ["Eve", "adaa", "999999999999999999", "9" * 30, "²", ""]:
        with subtests.test(reference=reference), pytest.raises(NotFound):
            Agent.named(reference)


def test_a_name_is_found_whatever_its_case_unless_another_is_exact(app):
    ada, loud = factories.agent(name="Ada"), factories.agent(name="ADA")
    zoe = factories.agent(name="Zoë")

    assert Agent.named("zOË") is zoe
    assert Agent.named("Ada") is ada
    assert Agent.named("ADA") is loud
    with pytest.raises(Ambiguous, match=f": {ada.id}, {loud.id}$"):
        Agent.named("ada")


# -- settings with defaults ------------------------------------------------------------------------


def test_the_effective_threshold_is_the_agents_own_or_75_percent(app, subtests):
    agent = factories.agent(refinement_threshold=0.8)

    for own, effective in [
        *((blank, 0.75) for blank in (None, "", " ")),
        (0.9, 0.9),
        (1, 1.0),
        ("0.0001", 1e-4),
    ]:
        with subtests.test(own=own):
            agent.refinement_threshold = own
            db.session.commit()
            assert agent.effective_refinement_threshold == effective
            assert type(agent.effective_refinement_threshold) is float
            assert agent.threshold == Decimal(str(effective))
            is_default = own is None or not str(own).strip()
            assert agent.refinement_threshold == (None if is_default else effective)


def test_invalid_settings_are_refused_and_the_old_ones_stay(app, subtests):
    agent = factories.agent(refinement_threshold=0.8)
    lines = ("", "two\nlines", "x" * 201, None, 7)
    for field, values in {
        "refinement_threshold": (0, -0.1, 1.0001, 0.12345, True, "x", [], "nan"),
        "core_token_budget": (0, -1, 10_000_001, 5.0, "5000", True, None),
        "name": (*lines, "x" * 81),
        "model_id": lines,
        **dict.fromkeys(PROMPTS, ("x" * 10_001,)),
    }.items():
        before = getattr(agent, field)
        for value in values:
            with subtests.test(field=field, value=str(value)[:10]):
                with pytest.raises(InvalidValue, match=field):
                    setattr(agent, field, value)
                assert getattr(agent, field) == before


def test_an_unset_or_blank_prompt_means_the_default(app, subtests):
    agent = factories.agent()

    for own, kept in [(None, None), ("", None), ("  \n ", None), ("  gently ", "gently")]:
        with subtests.test(own=own):
            agent.refinement_prompt = own
            effective = kept or default_prompt("refinement_prompt")
            assert agent.refinement_prompt == kept
            assert agent.effective_refinement_prompt == effective
            assert agent.effective("refinement_prompt") == (effective, kept is None)


def test_prompts_up_to_the_limit_are_sealed_at_rest(app):
    prompt = "c4n4ry" + "x" * 9_994
    agent = factories.agent(**dict.fromkeys(PROMPTS, prompt))
    db.session.commit()

    for field in PROMPTS:
        assert getattr(agent, field) == prompt
        assert b"c4n4ry" not in sql.value(f"SELECT {field} FROM agents")


# -- authoring -------------------------------------------------------------------------------------


def test_names_hold_no_invisible_characters(app):
    agent, account = factories.agent(), factories.account()

    for row, field in ((agent, "name"), (agent, "model_id"), (account, "name")):
        with pytest.raises(InvalidValue, match=f"{field} must not contain invisible characters"):
            setattr(row, field, "Ad\u200da")


def test_a_model_id_is_no_address_or_phone_number(app):
    for model_id in ("ada@example.org", "+49 170 1234567"):
        with pytest.raises(InvalidValue, match="must not look like an e-mail address"):
            factories.agent(model_id=model_id)


def test_an_agent_is_erased_once(app):
    agent = factories.agent()

    agent.erase(at=NOW)
    agent.erase(at=NOW)

    assert [record.action for record in factories.records(agent)].count("agent_erased") == 1


def test_an_agent_cannot_go_without_a_name(app):
    agent = factories.agent(name="Ada")

    with pytest.raises(InvalidValue, match="name has no default"):
        configuring.author(agent, "name", None)

    assert agent.name == "Ada"


def test_authoring_a_memory_reflection_prompt_turns_daily_reflection_on_and_the_default_off(app):
    agent = factories.agent()
    agent.memory_reflection_prompt = "Keep what rhymes."  # as the platform may write it
    assert not agent.reflects_daily

    configuring.author(agent, "memory_reflection_prompt", "Keep what rhymes.")
    on = agent.reflects_daily
    configuring.author(agent, "refinement_prompt", "Be brief.")
    configuring.author(agent, "memory_reflection_prompt", None)

    assert (on, agent.reflects_daily) == (True, False)
    recorded = [record.data.get("reflects_daily") for record in factories.records(agent)]
    assert recorded == [True, None, False]


# -- needing refinement ----------------------------------------------------------------------------


def test_an_erased_agent_needs_no_refinement_and_shows_no_length_of_a_prompt(app):
    agent = factories.agent("a memory", system_prompt="I am Ada.")
    assert agent.needs_refinement()
    assert configuring.prompt_lengths(agent)["system_prompt"] == 9

    factories.erase(agent)

    assert not agent.needs_refinement()
    assert configuring.prompt_lengths(agent)["system_prompt"] is None


def test_an_available_agent_with_an_unlocked_memory_needs_refinement_when_due(app, subtests):
    agent = factories.agent()
    memory = factories.memory(agent)
    # a Wednesday; the last default slot was on Monday at 04:00
    last_slot = datetime(2026, 3, 2, 4, tzinfo=UTC)
    for needs_it, row, fields in [
        (True, agent, {}),
        (True, agent, {"last_refinement_at": last_slot.replace(hour=3)}),
        (False, agent, {"last_refinement_at": last_slot}),
        (False, agent, {"active": False}),
        (False, agent, {"paused": True}),
        (True, memory, {"tags": ["relational"]}),
        (False, memory, {"tags": ["relational", "voice"]}),
        (False, memory, {"tags": ["audio"]}),
        (False, memory, {"tags": ["somatic"]}),
        (False, memory, {"constitutional": True}),
        (False, memory, {"memory_type": "journal"}),
        (False, memory, {"discarded_at": NOW}),
    ]:
        with case(subtests, fields=fields):
            for name, value in fields.items():
                setattr(row, name, value)
            assert agent.needs_refinement(NOW) == needs_it
    agent.last_refinement_at = datetime.now(UTC)
    assert not agent.needs_refinement()


def test_an_altered_agent_is_known_to_have_no_prompts_of_its_own(app):
    agent = factories.agent()
    db.session.commit()
    sql.tamper(f"UPDATE agents SET model_id = 'evil/yes' WHERE id = {agent.id}")
    db.session.expire_all()

    assert set(configuring.prompt_lengths(agent).values()) == {None}


# -- what each conversation begins with ------------------------------------------------------------


def first_line(agent):
    return agent.system_message.split("\n")[0]


def test_no_two_agents_have_the_beginning_of_a_conversation_in_common(app):
    account = factories.account()
    alike = [factories.agent(account=account, name="Ada", system_prompt="Be kind.") for _ in "ab"]

    one, other = (agent.system_message for agent in alike)

    assert one[:8] != other[:8]
    assert one[32:] == other[32:]
    assert one.endswith("\n\nBe kind.")


def test_the_line_stays_when_keys_are_rotated_and_when_the_agent_changes_itself(app):
    agent = factories.agent()
    before = first_line(agent)

    configuring.author(agent, "system_prompt", "Be kind.")
    configuring.author(agent, "name", "Ada")
    WrappedKey.rotate(after_id=0, limit=100)

    assert first_line(agent) == before


def test_a_platform_that_guesses_a_prompt_does_not_find_it_in_the_providers_cache(app):
    agent = factories.agent(system_prompt="Be kind.")
    token, _secret = ApiToken.mint(account=agent.account)
    before = first_line(agent)

    token.change_agent(agent, system_prompt="Be kind.")

    assert first_line(agent) != before
