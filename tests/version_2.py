"""What version 2 left behind: an agent's two reflection prompts in each other's column."""

from refine.extensions import db
from refine.models import Agent
from refine.models.columns import place_of
from tests import factories


def agent_of_version_2(
    *contents: str, journal: str | None = None, conversation: str | None = None
) -> Agent:
    """An agent with these prompts for its journal and for conversations, all of it committed."""
    agent = factories.agent(*contents)
    agent.prompts_in_place = None
    author_as_version_2(agent, "reflection_prompt", journal)
    author_as_version_2(agent, "memory_reflection_prompt", conversation)
    db.session.commit()
    return agent


def author_as_version_2(agent: Agent, column: str, text: str | None, by: str = "agent") -> None:
    """Write to a column as version 2 did, with its record; None writes nothing."""
    if text is None:
        return
    key = agent.data_key()
    setattr(agent, f"sealed_{column}", key.seal(text, place_of(agent, column)))
    if column == "reflection_prompt" and by == "agent":
        agent.reflects_daily = True
    agent.record(
        "agent_settings_update",
        subject=("Agent", agent.id),
        data={"field": column, "by": by, "characters": len(text)},
        sealed={"before": None, "after": text},
    )
