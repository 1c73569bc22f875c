"""The pages of the audit log, and its exports."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue
from sqlalchemy import case, select

from refine.extensions import db
from refine.models import Agent, AuditLog, ChainHead, User
from refine.models.audit.record import CLIENT_KEY
from refine.models.exported import exported_data
from refine.rules.quantities import cost_in_words
from refine.web import granted, scope
from refine.web.audit.changes import memory_changes
from refine.web.audit.exports import csv_file, json_file
from refine.web.audit.filters import FILTERS, one_of_kind, strip, total, views, visible_records
from refine.web.audit.sentences import sentence, subject_of
from refine.web.frame import verification_watch
from refine.web.lists import Chosen, page_of

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
    chosen = Chosen(FILTERS)
    agent, one_of = chosen["agent"], one_of_kind(chosen)
    listed = select(*_LISTED).outerjoin(User).outerjoin(Agent)
    without = ("kind",) if one_of is not None else ()
    days = strip(chosen)
    page = page_of(visible_records(chosen, listed, without=without), one_of=one_of)
    return render_template(
        "audit/page.html",
        page=page,
        records=page.rows,
        chosen=chosen,
        agent=agent,
        views=views(chosen),
        days=days,
        total=total(days),
        chain=_chain_of(agent) if agent else None,
        verification=None if agent else verification_watch().last,
    )


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
        changes=memory_changes(found),
        figures=_figures(data),
        raw=json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True),
        max_characters=_MAX_JSON_CHARACTERS,
    )


@pages.get("/audit/export.csv")
def export_csv() -> ResponseReturnValue:
    return csv_file(Chosen(FILTERS))


@pages.get("/audit/export.jsonl")
def export_jsonl() -> ResponseReturnValue:
    return json_file(Chosen(FILTERS))


class ChainVerified(NamedTuple):
    """How far a chain was verified, and when; None if it never was."""

    verified_at: datetime | None
    verified_sequence: int
    records_since: int


def _chain_of(agent: Agent) -> ChainVerified | None:
    """Return how far the agent's chain was verified; None if it has no records."""
    since = ChainHead.sequence - ChainHead.verified_sequence
    columns = ChainHead.verified_at, ChainHead.verified_sequence, since
    found = db.session.execute(select(*columns).where(ChainHead.is_of_agent(agent.id))).first()
    return ChainVerified(*found) if found is not None else None


def _figures(data: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the open data that the page shows nowhere else."""
    shown = {k: v for k, v in data.items() if k not in ("memories", "image_version", CLIENT_KEY)}
    if "cost_usd" in shown:
        unpriced = shown.get("unpriced_calls", 0)
        shown["cost"] = cost_in_words(Decimal(shown.pop("cost_usd")), unpriced)
    return sorted(shown.items())
