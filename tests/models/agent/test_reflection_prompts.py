"""The two reflection prompts of an agent of version 2 each keep their job."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask

from refine.errors import RowAltered
from refine.extensions import canonical_json, db
from refine.models import Agent
from refine.models.agent import PROMPTS
from refine.models.attested import _as_stored, _covered
from refine.models.integrity import verify_all
from refine.models.keys import WrappedKey
from refine.models.resealing import reseal_everything
from refine.models.upgrading import agents_with_exchanged_prompts, put_all_prompts_in_place
from refine.prompts import default_prompt
from tests import factories, sql
from tests.version_1 import forget_binding, sealing_as_version_1
from tests.version_2 import agent_of_version_2, author_as_version_2

JOURNAL, CONVERSATION = "Keep what rhymes.", "Keep what was promised."
EXCHANGED = "agent_prompts_exchanged"


def prompts_of(agent: Agent) -> tuple[str, str]:
    """The agent's prompts for its journal and for conversations, read anew."""
    db.session.rollback()
    db.session.expire_all()
    for_journal, _ = agent.effective("memory_reflection_prompt")
    for_conversations, _ = agent.effective("reflection_prompt")
    return for_journal, for_conversations


def actions_of(agent: Agent) -> list[str]:
    return [record.action for record in factories.records(agent)]


def told(agent: Agent) -> list[str]:
    return [entry.content for entry in factories.journal(agent)]


def problems() -> list[str]:
    db.session.rollback()
    return [each.problem for each in verify_all() if each.problem is not None]


# -- the upgrade ----------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", [JOURNAL, None])
@pytest.mark.parametrize("conversation", [CONVERSATION, None])
def test_each_prompt_does_the_same_before_and_after_the_upgrade(
    app: Flask, journal: str | None, conversation: str | None
) -> None:
    agent = agent_of_version_2("a memory", journal=journal, conversation=conversation)
    before = prompts_of(agent)

    done = list(put_all_prompts_in_place())

    assert before == prompts_of(agent)
    assert before == (
        journal or default_prompt("memory_reflection_prompt"),
        conversation or default_prompt("reflection_prompt"),
    )
    assert done == [1]
    assert agents_with_exchanged_prompts() == []
    assert agent.reflects_daily == (journal is not None)
    assert problems() == []


def test_each_prompt_ends_in_the_column_of_its_name(app: Flask) -> None:
    agent = agent_of_version_2(journal=JOURNAL)

    list(put_all_prompts_in_place())

    columns = "reflection_prompt IS NULL AND memory_reflection_prompt IS NOT NULL"
    assert sql.value(f"SELECT {columns} FROM agents WHERE id = {agent.id}")


def test_a_second_upgrade_moves_nothing_back(app: Flask) -> None:
    agent = agent_of_version_2(journal=JOURNAL, conversation=CONVERSATION)
    list(put_all_prompts_in_place())
    before = sql.snapshot()

    agent.lock()
    agent.put_prompts_in_place()
    db.session.commit()

    assert list(put_all_prompts_in_place()) == []
    assert sql.snapshot() == before
    assert prompts_of(agent) == (JOURNAL, CONVERSATION)


def test_an_upgrade_that_was_cut_off_goes_on_where_it_was(app: Flask) -> None:
    agents = [agent_of_version_2(journal=JOURNAL, conversation=CONVERSATION) for _ in range(3)]
    started = put_all_prompts_in_place()
    next(started)
    started.close()
    db.session.rollback()
    between = [prompts_of(agent) for agent in agents]
    left = agents_with_exchanged_prompts()

    list(put_all_prompts_in_place())

    assert between == [prompts_of(agent) for agent in agents] == [(JOURNAL, CONVERSATION)] * 3
    assert left == [agents[1].id, agents[2].id]
    assert [actions_of(agent).count(EXCHANGED) for agent in agents] == [1, 1, 1]


def test_two_upgrades_at_once_move_each_agents_prompts_once(app: Flask) -> None:
    agents = [agent_of_version_2(journal=JOURNAL, conversation=CONVERSATION) for _ in range(6)]

    def upgrade(_: int) -> list[int]:
        with app.app_context():
            return list(put_all_prompts_in_place())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(upgrade, range(2)))

    assert [prompts_of(agent) for agent in agents] == [(JOURNAL, CONVERSATION)] * 6
    assert [actions_of(agent).count(EXCHANGED) for agent in agents] == [1] * 6
    assert problems() == []


def test_earlier_records_stay_as_they_were(app: Flask) -> None:
    agent = agent_of_version_2(journal=JOURNAL, conversation=CONVERSATION)
    before = sql.snapshot()["audit_logs"]

    list(put_all_prompts_in_place())

    assert set(before) < set(sql.snapshot()["audit_logs"])
    changes = [record for record in factories.records(agent) if record.sealed_text is not None]
    assert [record.sealed.get("after") for record in changes][:2] == [JOURNAL, CONVERSATION]


def test_an_agent_with_one_of_the_prompts_is_told_and_another_is_not(app: Flask) -> None:
    with_prompt, without = agent_of_version_2(conversation=CONVERSATION), agent_of_version_2()

    list(put_all_prompts_in_place())

    (note,) = told(with_prompt)
    assert "memory_reflection_prompt is now what guides me when I look back" in note
    assert CONVERSATION not in note
    assert told(without) == []
    assert actions_of(without) == [EXCHANGED]


def test_an_altered_agent_is_left_alone(app: Flask) -> None:
    altered = agent_of_version_2(journal=JOURNAL, conversation=CONVERSATION)
    with_broken_key, other = agent_of_version_2(journal=JOURNAL), agent_of_version_2()
    sql.tamper(
        f"UPDATE agents SET model_id = 'evil/yes' WHERE id = {altered.id}",
        f"UPDATE data_keys SET wrapped = 'x' WHERE id = {with_broken_key.data_key_id}",
    )
    of_altered = f"SELECT a::text FROM agents a WHERE id = {altered.id}"
    before = sql.value(of_altered)

    done = list(put_all_prompts_in_place())

    assert done == [1]
    assert agents_with_exchanged_prompts() == [altered.id, with_broken_key.id]
    assert sql.value(of_altered) == before
    assert actions_of(other) == [EXCHANGED]


def test_an_altered_agent_is_known_to_have_no_prompts_of_its_own(app: Flask) -> None:
    agent = factories.agent()
    db.session.commit()
    sql.tamper(f"UPDATE agents SET model_id = 'evil/yes' WHERE id = {agent.id}")
    db.session.expire_all()

    assert [agent.characters_of(prompt) for prompt in PROMPTS] == [None] * len(PROMPTS)


def test_an_erased_agent_is_skipped(app: Flask) -> None:
    agent = agent_of_version_2(journal=JOURNAL)
    factories.erase(agent)
    db.session.commit()
    before = sql.snapshot()

    assert list(put_all_prompts_in_place()) == []
    assert sql.snapshot() == before


def test_a_new_installation_has_nothing_to_do(app: Flask) -> None:
    agent = factories.agent(memory_reflection_prompt=JOURNAL, reflection_prompt=CONVERSATION)
    db.session.commit()

    assert list(put_all_prompts_in_place()) == []
    assert prompts_of(agent) == (JOURNAL, CONVERSATION)
    assert actions_of(agent) == []


def test_an_agent_that_version_1_sealed_keeps_its_prompts_too(app: Flask) -> None:
    with sealing_as_version_1():
        agent = agent_of_version_2("a memory", journal=JOURNAL, conversation=CONVERSATION)
    forget_binding()

    before = prompts_of(agent)
    list(put_all_prompts_in_place())
    between = prompts_of(agent)
    list(reseal_everything())

    assert before == between == prompts_of(agent) == (JOURNAL, CONVERSATION)
    assert problems() == []


def test_an_agent_of_version_2_has_the_digest_that_version_2_gave_it(app: Flask) -> None:
    agent = agent_of_version_2(journal=JOURNAL)
    covered = [(name, scale) for name, scale, _ in _covered(Agent) if name != "prompts_in_place"]

    text = canonical_json(
        [
            "agents",
            {name: _as_stored(getattr(agent, name), scale) for name, scale in covered},
        ]
    )

    assert agent.row_digest == WrappedKey.platform_key().mac(text, "row")


# -- while it runs --------------------------------------------------------------------------------


def test_a_prompt_that_is_written_before_the_upgrade_comes_by_ends_in_place(app: Flask) -> None:
    authoring = agent_of_version_2(journal=JOURNAL, conversation=CONVERSATION)
    configured = agent_of_version_2(journal=JOURNAL, conversation=CONVERSATION)

    authoring.author("reflection_prompt", "Keep names.")
    configured.configure_by_platform({"by": "platform"}, reflection_prompt="Keep names.")
    db.session.commit()

    assert prompts_of(authoring) == prompts_of(configured) == (JOURNAL, "Keep names.")
    assert agents_with_exchanged_prompts() == []
    assert actions_of(authoring)[2:] == [EXCHANGED, "memory_saved", "agent_settings_update"]
    assert authoring.reflects_daily
    assert problems() == []


def test_a_prompt_is_read_where_it_is_even_if_it_was_moved_a_moment_ago(app: Flask) -> None:
    agent = agent_of_version_2(journal=JOURNAL, conversation=CONVERSATION)
    assert not agent.prompts_in_place  # loaded, but for its prompts

    def upgrade() -> None:
        with app.app_context():
            list(put_all_prompts_in_place())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(upgrade).result()

    assert agent.memory_reflection_prompt == JOURNAL
    assert agent.reflection_prompt == CONVERSATION


def test_a_mark_that_was_removed_in_the_database_opens_nothing(app: Flask) -> None:
    agent = factories.agent(memory_reflection_prompt=JOURNAL, reflection_prompt=CONVERSATION)
    db.session.commit()

    sql.tamper("UPDATE agents SET prompts_in_place = NULL")
    db.session.expire_all()

    with pytest.raises(RowAltered):
        assert agent.reflection_prompt
    db.session.rollback()
    assert list(put_all_prompts_in_place()) == []


# -- who wrote which prompt -----------------------------------------------------------------------


def test_a_platform_cannot_confirm_a_guess_of_a_prompt_that_was_moved(app: Flask) -> None:
    agent = agent_of_version_2(journal=JOURNAL)
    author_as_version_2(agent, "memory_reflection_prompt", CONVERSATION, by="platform")
    db.session.commit()
    list(put_all_prompts_in_place())

    of_its_own = agent.configure_by_platform({"by": "platform"}, reflection_prompt=CONVERSATION)
    guessed = agent.configure_by_platform({"by": "platform"}, memory_reflection_prompt=JOURNAL)

    assert of_its_own == []
    assert guessed == ["memory_reflection_prompt"]


def test_the_last_change_of_a_prompt_moves_with_it(app: Flask) -> None:
    agent = agent_of_version_2(journal=JOURNAL)
    (written,) = factories.records(agent)

    before = agent.last_prompt_changes()
    list(put_all_prompts_in_place())

    assert before == agent.last_prompt_changes()
    assert before == {"memory_reflection_prompt": written.created_at}
