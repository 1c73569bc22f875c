"""Whether an agent's model can be asked with the settings as they are: in Python, and in SQL.

Where it cannot, every session fails, so pages do not offer one. Sessions of the schedule, of
sweeps, of the API and of the command line are tried all the same: they say what is missing.
"""

from sqlalchemy import ColumnElement, and_, literal, not_, or_, select

from refine import settings
from refine.models.agent.agent import Agent
from refine.models.people import Account
from refine.models.people.account import DEMO_SLUG
from refine.rules.model_names import REHEARSAL_PREFIX, is_rehearsal_model

NO_KEY = "no API key is set"
NOT_REHEARSED = "the rehearsal model answers only agents of the demo account"


def why_unanswered(agent: Agent) -> str | None:
    """Return why no server answers for the agent's model; None if one does."""
    return why_model_unanswered(agent.model_id, is_demo=agent.account.is_demo)


def why_model_unanswered(model_id: str, *, is_demo: bool) -> str | None:
    """Return ``why_unanswered`` of an agent with this model."""
    current = settings.current()
    if is_rehearsal_model(model_id) and current.rehearses(is_demo=is_demo):
        return None
    if current.openrouter_api_key is None:
        return NO_KEY
    return NOT_REHEARSED if is_rehearsal_model(model_id) else None


def unanswered() -> dict[str, ColumnElement[bool]]:
    """Return each reason of ``why_unanswered`` with its SQL condition, by the current settings."""
    current = settings.current()
    names_rehearsal = Agent.model_id.startswith(REHEARSAL_PREFIX, autoescape=True)
    is_demo = select(Account.slug == DEMO_SLUG).where(Account.id == Agent.account_id)
    may_rehearse = or_(
        literal(current.rehearses(is_demo=False)), is_demo.correlate(Agent).scalar_subquery()
    )
    if current.openrouter_api_key is None:
        return {NO_KEY: not_(and_(names_rehearsal, may_rehearse))}
    return {NOT_REHEARSED: and_(names_rehearsal, not_(may_rehearse))}
