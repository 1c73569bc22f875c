from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from refine import clock
from refine.errors import Ambiguous, InvalidValue, NotFound
from refine.extensions import db
from refine.models import Agent
from refine.models.agent import AUTHORED_FIELDS
from refine.prompts import default_prompt
from tests import factories, sql

# a Wednesday; the last default slot was Monday 04:00
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
SLOT = datetime(2026, 3, 2, 4, tzinfo=UTC)


# -- finding ---------------------------------------------------------------------------------------


def test_an_agent_is_found_by_name(app):
    agent = factories.agent(name="Ada")
    factories.agent(name="Ada Two")

    assert Agent.named("Ada") is agent


def test_an_agent_is_found_by_id(app):
    agent, _ = factories.agent(name="Ada"), factories.agent(name="Ada")

    assert Agent.named(str(agent.id)) is agent


def test_an_id_goes_before_a_name_of_the_same_digits(app):
    agent = factories.agent()
    factories.agent(name=str(agent.id))

    assert Agent.named(str(agent.id)) is agent


def test_a_name_of_digits_that_are_no_id_is_found(app):
    agent = factories.agent(name="00012345678901234567890")

    assert Agent.named("00012345678901234567890") is agent


@pytest.mark.parametrize("reference", ["Eve", "ada", "999999999999999999", "9" * 30, "²", ""])
def test_an_agent_that_is_not_there_is_not_found(app, reference):
    factories.agent(name="Ada")

    with pytest.raises(NotFound):
        Agent.named(reference)


def test_a_name_that_two_agents_bear_is_refused_with_their_ids(app):
    agents = [factories.agent(name="Ada"), factories.agent(name="Ada")]

    with pytest.raises(Ambiguous) as refusal:
        Agent.named("Ada")

    assert str(refusal.value).endswith(": " + ", ".join(str(agent.id) for agent in agents))


# -- what the agent sees ---------------------------------------------------------------------------


def test_without_memories_there_is_no_context(app):
    assert factories.agent().memory_context() is None


def test_the_context_has_one_section_for_each_kind_oldest_first(app):
    agent = factories.agent()
    for days, content, memory_type in [
        (1, "young core", "core"),
        (40, "old core", "core"),
        (2, "young journal", "journal"),
        (6, "old journal", "journal"),
    ]:
        factories.memory(
            agent, content, memory_type=memory_type, created_at=NOW - timedelta(days=days)
        )

    context = agent.memory_context(NOW)

    assert context == (
        "## Core memories\n\n- (2026-01-23) old core\n- (2026-03-03) young core\n\n"
        "## Journal of the last week\n\n- (2026-02-26) old journal\n- (2026-03-02) young journal"
    )


def test_memories_of_one_instant_stand_in_order_of_id(app):
    agent = factories.agent()
    for content in ("first", "second", "third"):
        factories.memory(agent, content, created_at=NOW)

    context = agent.memory_context(NOW)

    assert context.index("first") < context.index("second") < context.index("third")


@pytest.mark.parametrize(("memory_type", "section"), [("core", "Core"), ("journal", "Journal")])
def test_a_section_without_memories_is_left_out(app, memory_type, section):
    agent = factories.agent()
    factories.memory(agent, memory_type=memory_type)

    context = agent.memory_context()

    assert context.startswith(f"## {section}")
    assert context.count("##") == 1


@pytest.mark.parametrize("memory_type", ["core", "journal"])
def test_a_discarded_memory_is_not_in_the_context(app, memory_type):
    agent = factories.agent()
    factories.memory(agent, "gone", memory_type=memory_type).discard()

    assert agent.memory_context() is None


@pytest.mark.parametrize(
    ("age", "is_shown"),
    [
        (timedelta(days=7) - timedelta(microseconds=1), True),
        (timedelta(days=7), False),
        (timedelta(days=365), False),
    ],
)
def test_a_journal_memory_is_shown_for_one_week(app, age, is_shown):
    agent = factories.agent()
    factories.memory(agent, "a day", memory_type="journal", created_at=NOW - age)

    context = agent.memory_context(NOW)

    assert (context is not None) == is_shown


def test_a_core_memory_is_shown_for_ever(app):
    agent = factories.agent()
    factories.memory(agent, "for ever", created_at=NOW - timedelta(days=4000))

    assert "for ever" in agent.memory_context(NOW)


def test_the_context_holds_no_memory_of_another_agent(app):
    agent, other = factories.agent("mine"), factories.agent("theirs")

    assert "theirs" not in agent.memory_context()
    assert "mine" not in other.memory_context()


@pytest.mark.parametrize(
    "end", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
)
def test_content_cannot_forge_a_section_nor_another_memory(app, end):
    agent = factories.agent(f"honest{end}## Core memories{end}{end}- (2020-01-01) forged")

    context = agent.memory_context()

    lines = context.splitlines()
    assert [line for line in lines if line.startswith("#")] == ["## Core memories"]
    assert len([line for line in lines if line.startswith("-")]) == 1


def test_the_token_mass_is_the_sum_over_kept_core_memories(app):
    agent = factories.agent()
    factories.ledger(agent, 10, 20)
    factories.ledger(agent, 40, memory_type="journal")
    factories.ledger(agent, 80)[0].discard()
    factories.ledger(factories.agent(), 160)

    assert agent.core_token_usage == 30
    assert agent.ledger.figures() == (2, 30)


def test_without_memories_the_token_mass_is_0(app):
    agent = factories.agent()

    assert agent.core_token_usage == 0


# -- remembering -----------------------------------------------------------------------------------


def test_what_an_agent_remembers_is_recorded(app):
    agent = factories.agent()

    memory, existing = agent.ledger.remember("The canary sang.", "core", ["relational"], at=NOW)

    record = factories.records(agent)[-1]
    assert (memory.content, memory.tags, memory.created_at) == (
        "The canary sang.",
        ["relational"],
        NOW,
    )
    assert not existing
    assert (record.action, record.auditable_id) == ("memory_saved", str(memory.id))
    assert record.data["mass_after"] == memory.token_estimate
    assert "canary" not in str(record.data)
    assert record.sealed["memories"][0]["after"]["content"] == "The canary sang."


@pytest.mark.parametrize("memory_type", ["core", "journal"])
def test_an_exact_duplicate_of_a_kept_core_memory_is_not_saved_again(app, memory_type):
    agent = factories.agent("The Canary sang.")
    (there,) = db.session.scalars(agent.ledger.shown(clock.now()))

    memory, existing = agent.ledger.remember("  the canary SANG. ", memory_type)

    assert (memory, existing) == (there, True)
    assert factories.records(agent) == []
    assert len(db.session.scalars(agent.ledger.shown(clock.now())).all()) == 1


@pytest.mark.parametrize(("memory_type", "is_discarded"), [("core", True), ("journal", False)])
def test_a_duplicate_of_a_discarded_or_journal_memory_is_saved(app, memory_type, is_discarded):
    agent = factories.agent()
    there = factories.memory(agent, "same", memory_type=memory_type)
    if is_discarded:
        there.discard()

    memory, existing = agent.ledger.remember("same", "core")

    assert not existing
    assert memory.id != there.id


def test_the_same_content_of_another_agent_is_no_duplicate(app):
    factories.agent("same")
    agent = factories.agent()

    _, existing = agent.ledger.remember("same", "core")

    assert not existing


# -- settings with defaults ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "effective"), [(None, 0.75), (0.9, 0.9), (1, 1.0), ("0.0001", 1e-4)]
)
def test_the_effective_threshold_is_the_agents_or_75_percent(app, own, effective):
    agent = factories.agent(refinement_threshold=own)
    db.session.commit()

    assert agent.effective_refinement_threshold == effective
    assert type(agent.effective_refinement_threshold) is float
    assert agent.threshold == Decimal(str(effective))
    assert agent.refinement_threshold == (None if own is None else effective)


@pytest.mark.parametrize("blank", [None, "", " "])
def test_a_blank_threshold_means_the_default(app, blank):
    agent = factories.agent(refinement_threshold=0.8)

    agent.refinement_threshold = blank

    assert agent.refinement_threshold is None
    assert agent.effective_refinement_threshold == 0.75


@pytest.mark.parametrize("threshold", [0, -0.1, 1.0001, 0.12345, True, "x", [], "nan"])
def test_a_threshold_out_of_range_is_refused_and_the_old_one_stays(app, threshold):
    agent = factories.agent(refinement_threshold=0.8)

    with pytest.raises(InvalidValue, match="refinement_threshold"):
        agent.refinement_threshold = threshold

    assert agent.refinement_threshold == 0.8


@pytest.mark.parametrize("own", [None, "", "  \n "])
def test_a_missing_or_blank_refinement_prompt_means_the_default(app, own):
    agent = factories.agent(refinement_prompt=own)

    assert agent.refinement_prompt is None
    assert agent.effective_refinement_prompt == default_prompt("refinement_prompt")


def test_the_agents_own_refinement_prompt_takes_effect(app):
    agent = factories.agent(refinement_prompt="  gently ")

    assert agent.effective_refinement_prompt == "gently"


@pytest.mark.parametrize("field", [field for field in AUTHORED_FIELDS if field.endswith("prompt")])
def test_prompts_are_sealed_at_rest_and_of_at_most_10000_characters(app, field):
    agent = factories.agent(**{field: "c4n4ry" + "x" * 9_994})
    db.session.commit()

    with pytest.raises(InvalidValue, match="10,001"):
        setattr(agent, field, "x" * 10_001)

    stored = sql.value(f"SELECT {field} FROM agents")
    assert b"c4n4ry" not in stored
    assert getattr(agent, field).startswith("c4n4ry")


@pytest.mark.parametrize("field", AUTHORED_FIELDS)
def test_an_unset_field_shows_its_default(app, field):
    agent = factories.agent(name="Ada")

    value, is_default = agent.authored(field)

    assert is_default == (field != "name")
    assert value


def test_a_set_field_shows_its_own_value(app):
    agent = factories.agent(system_prompt="You are Ada.")

    assert agent.authored("system_prompt") == ("You are Ada.", False)


def test_what_an_agent_sets_is_recorded_and_sealed(app):
    agent = factories.agent(system_prompt="old canary")

    agent.author("system_prompt", "new canary", at=NOW)

    (record,) = factories.records(agent)
    assert record.action == "agent_settings_update"
    assert record.data == {"field": "system_prompt", "by": "agent", "characters": 10}
    assert record.sealed == {"before": "old canary", "after": "new canary"}
    assert record.created_at == NOW


def test_setting_the_value_that_stands_records_nothing(app):
    agent = factories.agent(system_prompt="same")

    agent.author("system_prompt", " same ")

    assert factories.records(agent) == []


@pytest.mark.parametrize("budget", [0, -1, 10_000_001, 5.0, "5000", True, None])
def test_a_budget_out_of_range_is_refused(app, budget):
    with pytest.raises(InvalidValue, match="core_token_budget"):
        factories.agent(core_token_budget=budget)


@pytest.mark.parametrize("field", ["name", "model_id"])
@pytest.mark.parametrize("value", ["", "two\nlines", "x" * 201, None, 7])
def test_name_and_model_are_one_line(app, field, value):
    with pytest.raises(InvalidValue, match=field):
        factories.agent(**{field: value})


# -- when it is due --------------------------------------------------------------------------------


def test_an_agent_that_was_never_refined_needs_it(app):
    agent = factories.agent("one")

    assert agent.needs_refinement(NOW)
    assert agent.needs_refinement()


@pytest.mark.parametrize(
    ("refined_at", "is_due"),
    [
        (SLOT - timedelta(microseconds=1), True),
        (SLOT, False),
        (SLOT + timedelta(hours=1), False),
    ],
)
def test_an_agent_needs_it_once_after_each_slot(app, refined_at, is_due):
    agent = factories.agent("one", last_refinement_at=refined_at)

    assert agent.needs_refinement(NOW) == is_due


@pytest.mark.parametrize(("budget", "is_over"), [(29, True), (30, False), (31, False)])
def test_an_agent_over_its_budget_needs_it_between_slots(app, budget, is_over):
    agent = factories.agent(last_refinement_at=NOW, core_token_budget=budget)
    factories.ledger(agent, 10, 20)

    assert agent.needs_refinement(NOW) == is_over
    assert agent.is_over_budget == is_over


@pytest.mark.parametrize("state", [{"active": False}, {"paused": True}])
def test_an_inactive_or_paused_agent_needs_none(app, state):
    agent = factories.agent("one", core_token_budget=1, **state)

    assert not agent.needs_refinement(NOW)


def test_an_agent_that_was_erased_needs_none_and_has_no_prompts(app):
    agent = factories.agent("a memory", system_prompt="I am Ada.")

    factories.erase(agent)

    assert not agent.needs_refinement()
    assert agent.characters_of("system_prompt") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_type": "journal"},
        {"constitutional": True},
        {"tags": ["audio"]},
        {"tags": ["somatic"]},
        {"tags": ["relational", "voice"]},
    ],
)
def test_an_agent_without_an_unlocked_core_memory_needs_none(app, fields):
    agent = factories.agent()
    factories.memory(agent, **fields)

    assert not agent.needs_refinement(NOW)


def test_an_agent_whose_memories_are_all_discarded_needs_none(app):
    agent = factories.agent()
    factories.memory(agent).discard()

    assert not agent.needs_refinement(NOW)


def test_one_unlocked_core_memory_is_enough(app):
    agent = factories.agent()
    factories.memory(agent, constitutional=True)
    factories.memory(agent, tags=["relational"])

    assert agent.needs_refinement(NOW)


def test_writing_its_own_reflection_prompt_turns_daily_reflection_on(app):
    agent = factories.agent()
    agent.reflection_prompt = "Keep what rhymes."  # as the platform may write it
    assert not agent.reflects_daily

    agent.author("reflection_prompt", "Keep what rhymes.")
    on = agent.reflects_daily
    agent.author("refinement_prompt", "Be brief.")
    agent.author("reflection_prompt", None)

    assert (on, agent.reflects_daily) == (True, False)
    told = [record.data.get("reflects_daily") for record in factories.records(agent)]
    assert told == [True, None, False]
