"""The first steps: each is done by what happened; who put them away sees them no more."""

from typing import Any, NamedTuple

from flask import url_for
from sqlalchemy import exists, select
from sqlalchemy.orm import contains_eager

from refine import settings
from refine.demo import FIRST_AGENT
from refine.extensions import db
from refine.models import Account, Agent, ApiToken, AuditLog, RefinementSession
from refine.models.people.account import DEMO_SLUG
from refine.models.runs.session.session import ENDED
from refine.rules.model_names import REHEARSAL_PREFIX
from refine.web import granted, scope
from refine.web.links import url_in_account


class Step(NamedTuple):
    """Something to do, by its name in `overview/_step.html`; ``url`` is None while it cannot be."""

    name: str
    is_done: bool
    url: str | None
    figure: str = ""
    is_begun_here: bool = False


def shown() -> list[Step]:
    """Return all steps while one of them is open."""
    if not _wants_steps():
        return []
    of_demo = select(Agent).join(Agent.account).options(contains_eager(Agent.account))
    is_first = Account.slug == DEMO_SLUG, Agent.name == FIRST_AGENT
    agent = db.session.scalar(of_demo.where(*is_first, scope.in_scope(Account.id)))
    steps = [*(_with_demo(agent) if agent is not None else ()), *_with_own_agents()]
    return [] if all(step.is_done for step in steps) else steps


def next_with(agent: Agent) -> Step | None:
    """Return the next step, if it is one with this agent."""
    if not _wants_steps() or agent.name != FIRST_AGENT or not agent.account.is_demo:
        return None
    return next((step for step in _with_demo(agent) if not step.is_done), None)


def _wants_steps() -> bool:
    return scope.user().may_act and scope.user().steps_dismissed_at is None


def _with_demo(agent: Agent) -> list[Step]:
    of_agent = RefinementSession.agent_id == agent.id
    completed = select(RefinementSession).where(of_agent, RefinementSession.status == "completed")
    last = db.session.scalar(completed.order_by(RefinementSession.created_at.desc()).limit(1))
    is_reading = AuditLog.action == "memory_access_viewed", AuditLog.agent_id == agent.id
    of_session = AuditLog.data["what"].as_string() == "session"
    was_read, was_undone = _found(
        exists().where(*is_reading, of_session, AuditLog.user_id == scope.user().id),
        exists().where(of_agent, RefinementSession.undone_at.is_not(None)),
    )
    may_read = granted.active_grant_for(agent.id) is not None
    page = undo = None
    if last is not None:
        page = url_for("sessions.page", session_id=last.id, _anchor="contents")
        undo = url_for("sessions.undo_form", session_id=last.id) if last.can_undo else None
    ask = url_for("access.new", agent=agent.id, session=last.id if last is not None else None)
    begin = url_for("agent.refine_now", agent_id=agent.id)
    mass = last.mass_without_it if last is not None else agent.core_token_usage
    return [
        Step("refine", last is not None, begin, is_begun_here=True),
        Step("ask", may_read or was_read, ask),
        Step("read", was_read, page if may_read else None),
        Step("undo", was_undone, undo, figure=f"{mass:,}"),
    ]


def _with_own_agents() -> list[Step]:
    is_own = ~Agent.model_id.startswith(REHEARSAL_PREFIX, autoescape=True)
    has_own = scope.in_scope(Agent.account_id) & is_own
    of_own = RefinementSession.agent_id == Agent.id, RefinementSession.status.in_(ENDED)
    has_token, has_agent = _found(
        exists().where(scope.in_scope(ApiToken.account_id), ApiToken.agent_id.is_(None)),
        exists().where(has_own),
    )
    # without own agents it would look through the sessions of all others
    (has_session,) = _found(exists().where(has_own, *of_own)) if has_agent else (False,)
    agents, tokens = url_in_account("agents.listing"), url_in_account("tokens.listing")
    slug = scope.account_to_change().slug
    return [
        Step("provider", settings.current().openrouter_api_key is not None, agents),
        Step("platform", has_token, tokens, figure=slug),
        Step("own", has_agent, agents, figure=slug),
        Step("refine own", has_session, agents if has_agent else None),
    ]


def _found(*conditions: Any) -> Any:
    return db.session.execute(select(*conditions)).one()
