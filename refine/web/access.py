"""Access to memories: requests, the agents' answers, and what was read under each grant."""

import uuid
from typing import Any

from flask import abort, make_response, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from sqlalchemy import select
from sqlalchemy.orm import contains_eager, joinedload, undefer_group
from werkzeug.wrappers import Response

from refine.jobs.queue import request_access_later
from refine.models import AccessGrant, Agent, AuditLog
from refine.models.columns import id_in
from refine.models.runs.access.asking_rules import (
    MAX_PURPOSE_CHARACTERS,
    MIN_PURPOSE_CHARACTERS,
    AccessScope,
    AccessTerms,
)
from refine.models.runs.access.grant import NO_LONGER_ALLOWED, REQUEST_LAPSES_AFTER, STATUSES
from refine.rules.quantities import in_hours, plural
from refine.web import granted, in_place, scope
from refine.web.forms import done, shown_again, uuid_of, whole_number
from refine.web.ledger import memory_or_404
from refine.web.lists import Chosen, of_agent, one_of, page_of
from refine.web.words import ACCESS_ENDS, ACCESS_STATES, first_upper, minute

pages = scope.area("access")

_WITH_PROMPTS = (*scope.WITH_ACCOUNT, undefer_group("prompts"))
_STATES = {status: ACCESS_STATES[status].word for status in STATUSES}
_FILTERS = [
    of_agent(AccessGrant.agent_id),
    one_of("status", "Status", _STATES, lambda word: AccessGrant.current_status == word),
]


@pages.get("/access")
def listing() -> str:
    chosen = Chosen(_FILTERS)
    query = (
        select(AccessGrant)
        .join(AccessGrant.agent)
        .options(contains_eager(AccessGrant.agent), joinedload(AccessGrant.user))
        .where(scope.in_scope(Agent.account_id), *chosen.conditions())
        .order_by(AccessGrant.created_at.desc(), AccessGrant.id)
    )
    page = page_of(query)
    grants = [row[0] for row in page.rows]
    is_pending = any(grant.status == "requested" for grant in grants)
    return render_template(
        "access/listing.html",
        page=page,
        grants=grants,
        refresh_seconds=in_place.seconds_while(is_pending),
        chosen=chosen,
    )


@pages.get("/access/new")
@scope.confirmed_admins_only
def new(error: Exception | None = None) -> str:
    agent, user = _agent_or_404(), scope.user()
    current = AccessGrant.unfinished_of(agent, user)
    return render_template(
        "access/new.html",
        agent=agent,
        scope=_scope_or_404(agent),
        error=error,
        open_id=current.id if current is not None and not current.has_expired else None,
        why_user_may_not_ask=None if error else AccessGrant.refusal_reason(agent, user),
        minutes=request.form.get("duration_minutes", type=int),
        min_purpose=MIN_PURPOSE_CHARACTERS,
        max_purpose=MAX_PURPOSE_CHARACTERS,
    )


@pages.post("/access/new")
@scope.confirmed_admins_only
@shown_again(new)
def ask() -> ResponseReturnValue:
    agent = _agent_or_404()
    terms = AccessTerms.checked(
        scope=_scope_or_404(agent),
        reason=request.form.get("reason"),
        purpose=request.form.get("purpose"),
        duration_minutes=whole_number(request.form.get("duration_minutes", ""), "duration_minutes"),
    )
    requested = request_access_later(agent, scope.user(), terms)
    return redirect(url_for("access.page", grant_id=requested.id), 303)


@pages.get("/access/<uuid:grant_id>")
def page(grant_id: uuid.UUID) -> ResponseReturnValue:
    response = make_response(render_template("access/page.html", **_context(grant_id)))
    # a page with content leads here when access ends: the browser must not keep that page
    return _clearing_cache(response) if request.args.get("over") else response


@pages.post("/access/<uuid:grant_id>/end")
def end(grant_id: uuid.UUID) -> ResponseReturnValue:
    grant = scope.found_or_404(AccessGrant, grant_id)
    if not grant.may_be_ended_by(scope.user()):
        abort(403)
    has_ended = grant.end(user=scope.user())
    said = "The access has ended." if has_ended else "This access had already ended."
    return _clearing_cache(done(said, url_for("access.page", grant_id=grant_id)))


def _context(grant_id: uuid.UUID) -> dict[str, Any]:
    grant = scope.found_or_404(AccessGrant, grant_id, *granted.WITH_PURPOSE)
    history = page_of(
        select(AuditLog)
        .where(grant.is_subject())
        .options(joinedload(AuditLog.user))
        .order_by(AuditLog.sequence.desc())
    )
    user, state, ids = scope.user(), grant.current_status, grant.memory_ids or []
    asked: dict[str, Any] = {
        "session": grant.session_id,
        "memory": ids[0] if len(ids) == 1 else None,
    }
    is_mine, is_open = grant.user_id == user.id, state in ("requested", "granted")
    refusal = AccessGrant.refusal_reason(grant.agent, user) if is_mine and not is_open else None
    return {
        "grant": grant,
        "agent": grant.agent,
        "state": state,
        "outcome": _outcome(grant, is_mine=is_mine),
        "is_mine": is_mine,
        "can_read": is_mine and grant.permits_reading,
        "can_end": state == "granted" and grant.may_be_ended_by(user),
        "can_ask_again": is_mine and not is_open and refusal is None,
        "ask_again_url": url_for("access.new", agent=grant.agent_id, **asked),
        "refresh_seconds": in_place.WATCHED_SECONDS if state == "requested" else None,
        "may_see_purpose": granted.may_see_purpose(grant),
        "purpose_text": granted.purpose_of(grant),
        "history": history,
    }


def _outcome(grant: AccessGrant, *, is_mine: bool) -> str:
    name, hours = grant.agent.name, in_hours(REQUEST_LAPSES_AFTER)
    if grant.error_kind == NO_LONGER_ALLOWED:
        return "The request was no longer allowed; the history says why. Nothing was shown."
    match grant.current_status:
        case "granted":
            who = "You" if is_mine else grant.user.email
            # somebody demoted since may not read
            may = "may read" if grant.permits_reading else "cannot read now; the grant runs"
            return f"{_granted(grant)} {who} {may} until {minute(grant.expires_at)}."
        case "ended":
            by = f" ({grant.ended_by.email})" if grant.ended_by is not None else ""
            why = ACCESS_ENDS[grant.current_end_reason or "expired"]
            return f"{first_upper(why)}{by}, {minute(grant.current_ended_at)}."
        case "requested" if grant.started_at is not None:
            return f"Asking {name}."
        case "requested":
            return f"Waiting for a worker. The request lapses after {hours}."
        case "declined":
            return f"{name} did not consent. Nothing was shown."
        case "lapsed":
            return f"No worker could ask {name} within {hours}. Nothing was shown."
    return f"{name} gave no valid answer. Nothing was shown."


def _granted(grant: AccessGrant) -> str:
    """Say what the agent granted, and what that does not open."""
    name, is_narrow = grant.agent.name, grant.scope.is_narrow
    if not is_narrow and grant.minutes == grant.duration_minutes:
        return f"{name} consented."
    rest = " Everything else stays sealed: other memories, prompts, search." if is_narrow else ""
    return f"{name} granted {grant.scope} for {plural(grant.minutes, 'minute')}.{rest}"


def _agent_or_404() -> Agent:
    if (agent_id := id_in(request.args.get("agent", ""))) is None:
        abort(404)
    return scope.found_or_404(Agent, agent_id, *_WITH_PROMPTS)


def _scope_or_404(agent: Agent) -> AccessScope:
    """Return what the URL asks to read of the agent; 404, never more, if it has no such thing."""
    named = {name: request.args[name] for name in ("session", "memory") if name in request.args}
    session_id, memory_id = uuid_of(named.get("session", "")), id_in(named.get("memory", ""))
    if len(named) != sum(each is not None for each in (session_id, memory_id)):
        abort(404)
    if session_id is not None:
        session = scope.session_or_404(session_id)
        if session.agent_id != agent.id or session.is_live:
            abort(404)
    if memory_id is None:
        return AccessScope(session_id)
    if memory_or_404(agent.id, memory_id).is_erased:
        abort(404)
    return AccessScope(session_id, frozenset([memory_id]))


def _clearing_cache(response: Response) -> Response:
    response.headers["Clear-Site-Data"] = '"cache"'
    return response
