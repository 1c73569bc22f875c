"""Which model answers for an agent, according to its runs."""

from sqlalchemy import select

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.runs.access import AccessGrant
from refine.models.runs.session import RefinementSession
from refine.models.runs.task import MemoryTask
from refine.rules.model_names import is_readable
from refine.rules.personal import looks_personal


def other_model_of(agent: Agent) -> str | None:
    """Return the name of the model that answers in place of the agent's own; None if none does.

    According to the agent's last answered session; None once the agent has another model, or its
    own has answered a later run, and for a name that cannot be read, looks personal, or was altered
    in the database. Only sessions offer a name, because the rows of other runs have no digest
    of it, and an admin may make it the agent's model.
    """
    last = _last_answered_session(agent)
    if last is None or last.model_id != agent.model_id or not last.is_genuine:
        return None
    name = last.answered_model_id
    is_usable = name is not None and is_readable(name) and not looks_personal(name)
    return name if is_usable and not _has_own_answered_since(last) else None


def _last_answered_session(agent: Agent) -> RefinementSession | None:
    answered = select(RefinementSession).where(
        RefinementSession.agent_id == agent.id, RefinementSession.llm_calls > 0
    )
    return db.session.scalar(answered.order_by(RefinementSession.created_at.desc()).limit(1))


def _has_own_answered_since(session: RefinementSession) -> bool:
    """Tell whether the model that the session asked for has answered another run since."""
    since = session.started_at or session.created_at
    return any(
        db.session.scalar(
            select(kind.id)
            .where(
                kind.agent_id == session.agent_id,
                kind.model_id == session.model_id,
                kind.answered_model_id.is_(None),
                kind.llm_calls > 0,
                kind.started_at > since,
            )
            .limit(1)
        )
        for kind in (MemoryTask, AccessGrant)
    )
