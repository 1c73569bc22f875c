"""The agent's own sessions: read them, request one, undo the last."""

import uuid
from typing import Annotated, Literal

from sqlalchemy.orm import undefer

from refine.api.routing import operation
from refine.api.rows import Page, PageQuery, agent_row_or_404, page_of, rows_of_agent
from refine.api.schemas import EmptyBody, Omittable, Resource, Spending, Time
from refine.jobs.queue import refine_later
from refine.models import Agent, RefinementSession
from refine.models.runs.session.session import Channel, EndStatus, Trigger
from refine.refinement import time_machine

Status = Literal["queued", "running", EndStatus]


class SessionQuery(PageQuery):
    """Which sessions."""

    status: Annotated[Status, Omittable]


class Session(Spending):
    """A refinement session."""

    id: uuid.UUID
    trigger: Trigger
    status: Status
    end_reason: str | None
    model_id: str
    threshold: float
    mass_before: int | None
    mass_after: int | None
    memories_before: int | None
    memories_after: int | None
    duplicates_removed: int
    removable_tokens: int
    removed_tokens: int
    saved_tokens: int
    """By how much every prompt is smaller, exact duplicates included."""
    mutation_count: int
    stats: dict[str, int]
    """How many memories each operation changed: `consolidated`, `updated` and so on; and, where it
    happened, `retired`, `overruled`, `worn`, `unread`, refusals by cause."""
    reading_calls: int
    """Calls for second readings."""
    summary: str | None
    created_at: Time
    started_at: Time | None
    ended_at: Time | None
    undone_at: Time | None
    undone_through: Channel | None
    """Where the undo was requested."""


class SessionPage(Page):
    """A page of sessions."""

    sessions: list[Session]


class Undone(Resource):
    """An undone session."""

    session: Session
    undone_before: bool
    """true if an earlier request undid it, so that nothing changed this time."""
    effect: time_machine.Effect


@operation("GET", "/sessions", bearer="agent")
def list_sessions(agent: Agent, query: SessionQuery) -> SessionPage:
    """List the agent's sessions, newest first."""
    rows = (
        rows_of_agent(agent, RefinementSession)
        .options(undefer(RefinementSession.sealed_summary))
        .order_by(RefinementSession.created_at.desc(), RefinementSession.id)
    )
    if query.status is not None:
        rows = rows.where(RefinementSession.status == query.status)
    return page_of(SessionPage, rows, query, Session.of)


@operation("POST", "/sessions", bearer="agent", status=202)
def request_session(agent: Agent, body: EmptyBody) -> Session:
    """Request a session; the agent will be asked for its consent."""
    return Session.of(refine_later(agent, "api"))


@operation("GET", "/sessions/<uuid:session_id>", bearer="agent")
def get_session(agent: Agent, session_id: uuid.UUID) -> Session:
    """Return one of the agent's sessions, such as one that it requested."""
    return Session.of(_own(agent, session_id))


@operation("POST", "/sessions/<uuid:session_id>/undo", bearer="agent")
def undo_session(agent: Agent, session_id: uuid.UUID, body: EmptyBody) -> Undone:
    """Undo the agent's last session, including the removal of duplicates."""
    session = _own(agent, session_id)
    done = time_machine.undo_own_last(session)
    shown = Session.of(session)
    return Undone(session=shown, undone_before=done.is_done, effect=done.effect)


def _own(agent: Agent, session_id: uuid.UUID) -> RefinementSession:
    return agent_row_or_404(agent, RefinementSession, session_id, "session")
