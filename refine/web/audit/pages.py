"""The pages of the audit log, and its exports."""

import json
from functools import cache
from typing import Any

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue
from sqlalchemy import Select, case, select

from refine.models import Agent, AuditLog, User
from refine.models.exported import exported_data
from refine.models.people.recording import CLIENT_KEY
from refine.web import granted, scope
from refine.web.alarm import verification_watch
from refine.web.audit.chains import chain_verified
from refine.web.audit.exports import csv_file, json_file
from refine.web.audit.filters import AuditFilter, suggested_actors
from refine.web.audit.sentences import sentence
from refine.web.audit.strip import strip
from refine.web.audit.subjects import subject_of
from refine.web.links import here
from refine.web.paging import page_of

pages = Blueprint("audit", __name__)

# A page must stay small, and an import's record holds hundreds of memories.
_MAX_JSON_CHARACTERS = 20_000

# What the list shows, without ``data``: that of an import's record is hundreds of memories.
_LISTED: tuple[Any, ...] = (
    AuditLog.id,
    AuditLog.sequence,
    AuditLog.action,
    AuditLog.created_at,
    AuditLog.session_id,
    AuditLog.agent_id,
    case((AuditLog.auditable_type == "AgentMemory", AuditLog.auditable_id)).label("memory_id"),
    Agent.name.label("agent_name"),
    User.email,
    AuditLog.by,
    AuditLog.client_address,
)


@pages.get("/audit")
def page() -> str:
    chosen = AuditFilter.of_request()
    agent = scope.agent_or_404(chosen.agent_id) if chosen.agent_id is not None else None
    one_of = chosen.one_of
    records = chosen.records(_listed(), but_kind=one_of is not None)
    page = page_of(records, one_of=one_of)
    return render_template(
        "audit/page.html",
        page=page,
        records=page.rows,
        filter=chosen,
        agent=agent,
        views=chosen.views(),
        actors=suggested_actors(),
        strip=strip(chosen),
        days_url=_days_url(),
        chain=chain_verified(agent.id) if agent else None,
        verification=None if agent else verification_watch().last,
    )


@cache
def _listed() -> Select[*tuple[Any, ...]]:
    return select(*_LISTED).outerjoin(User).outerjoin(Agent)


@pages.get("/audit/<int:record_id>")
def record(record_id: int) -> str:
    """Show the open data of a record; its contents stay sealed without an active grant."""
    found = scope.found_or_404(AuditLog, record_id)
    opened = granted.record(found.agent_id, record_id)
    data = exported_data(found)
    client = data.pop(CLIENT_KEY, None)
    if client is not None and scope.user().may_act:
        data[CLIENT_KEY] = client
    return render_template(
        "audit/record.html",
        record=found,
        opened=opened,
        client=data.get(CLIENT_KEY),
        sentence=sentence(found),
        subject=subject_of(found),
        raw=json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True),
        max_characters=_MAX_JSON_CHARACTERS,
    )


@pages.get("/audit/export.csv")
def export_csv() -> ResponseReturnValue:
    return csv_file(_chosen())


@pages.get("/audit/export.jsonl")
def export_jsonl() -> ResponseReturnValue:
    return json_file(_chosen())


def _chosen() -> AuditFilter:
    """Return the filter of the URL; 404 if the user may not see the agent that it names."""
    chosen = AuditFilter.of_request()
    if chosen.agent_id is not None:
        scope.agent_or_404(chosen.agent_id)
    return chosen


def _days_url() -> str:
    """Return the URL of this list, up to the days that it is to show."""
    url = here(since=None, until=None, page=None)
    return f"{url}{'&' if '?' in url else '?'}"
