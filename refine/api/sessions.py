"""The agent's own sessions: what became of them, asking for one, undoing the last."""

import uuid
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from flask import Response
from sqlalchemy import select
from sqlalchemy.orm import undefer

from refine import clock
from refine.api.paging import PAGED, page_of
from refine.api.problems import Problem
from refine.api.routing import Answer, given, operation
from refine.api.schemas import one_of
from refine.errors import Unreachable
from refine.extensions import db
from refine.jobs.runs import refine_later
from refine.models import Agent, RefinementSession
from refine.models.runs.run import LIVE
from refine.models.runs.session.state import ENDED
from refine.refinement import time_machine


@operation(
    "GET",
    "/sessions",
    bearer="agent",
    query={**PAGED, "status": one_of(*LIVE, *ENDED)},
    answers={200: Answer("A page of them.", "Sessions")},
)
def sessions(agent: Agent, query: dict[str, Any]) -> Response:
    """The agent's sessions, newest first."""
    wanted = (
        select(RefinementSession)
        .options(undefer(RefinementSession.sealed_summary))
        .where(RefinementSession.agent_id == agent.id)
        .order_by(RefinementSession.created_at.desc(), RefinementSession.id)
    )
    if "status" in query:
        wanted = wanted.where(RefinementSession.status == query["status"])
    return given(page_of(wanted, query, "sessions", _shown))


@operation(
    "POST",
    "/sessions",
    bearer="agent",
    body="Nothing",
    answers={
        202: Answer("It is queued; the agent will be asked for its consent.", "Session"),
        409: Answer("There is a live one, named by `session_id`; or none may run."),
    },
)
def ask(agent: Agent, body: dict[str, Any]) -> Response:
    """Ask for a session of one's own."""
    agent_id = agent.id
    with suppress(Unreachable):  # it is queued, and the clock hands it over as soon as it can
        refine_later(agent, "api")
    queued = RefinementSession.latest_of(db.session.get_one(Agent, agent_id))
    assert queued is not None  # noqa: S101 - queued above, or this was refused; for mypy
    return given(_shown(queued), 202)


@operation(
    "POST",
    "/sessions/<uuid:session_id>/undo",
    bearer="agent",
    body="Nothing",
    answers={
        200: Answer("It is undone, now or before.", "Undone"),
        404: Answer("The agent has no such session."),
        409: Answer("It is not the agent's last one, or what it changed was changed since."),
    },
)
def undo(agent: Agent, session_id: uuid.UUID, body: dict[str, Any]) -> Response:
    """Undo one's own last session, duplicates that it removed included."""
    session = db.session.get(RefinementSession, session_id)
    if session is None or session.agent_id != agent.id:
        raise Problem(404, "You have no such session.")
    done = time_machine.undo_own_last(session)
    db.session.commit()
    return given(
        {
            "session": _shown(session),
            "undone_before": done.is_done,
            "effect": asdict(done.effect),
        }
    )


def _shown(session: RefinementSession) -> dict[str, Any]:
    return {
        "id": str(session.id),
        "trigger": session.trigger,
        "status": session.status,
        "end_reason": session.end_reason,
        "model_id": session.model_id,
        "threshold": float(session.threshold),
        "mass_before": session.mass_before,
        "mass_after": session.mass_after,
        "memories_before": session.memories_before,
        "memories_after": session.memories_after,
        "duplicates_removed": session.duplicates_removed,
        "removable_tokens": session.removable_tokens,
        "removed_tokens": session.removed_tokens,
        "mutation_count": session.mutation_count,
        "stats": dict(session.stats),
        "prompt_tokens": session.prompt_tokens,
        "cached_tokens": session.cached_tokens,
        "completion_tokens": session.completion_tokens,
        "cost_usd": str(session.cost_usd),
        "summary": session.summary,
        "created_at": clock.iso(session.created_at),
        "started_at": clock.iso(session.started_at),
        "ended_at": clock.iso(session.ended_at),
        "undone_at": clock.iso(session.undone_at),
        "undone_through": session.undone_through,
    }
