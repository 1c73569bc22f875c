"""What each conversation of an agent begins with, in every kind of conversation."""

from refine.models import WrappedKey
from refine.models.agent import configuring
from refine.models.clients import ApiToken
from tests import factories


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
