"""The audit log: a filtered list, a page for each record, and exports, which are records too."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from flask import Blueprint, Response, render_template, stream_with_context
from sqlalchemy import case, cast, select
from sqlalchemy.dialects.postgresql import JSONB

from refine import clock
from refine.extensions import db
from refine.models import Agent, AuditLog, ChainHead, User
from refine.models.audit import PLATFORM
from refine.models.audit.record import CLIENT_KEY
from refine.models.ledger.history import shown_data
from refine.rules.personal import mask_ids
from refine.rules.quantities import cost_in_words
from refine.web import granted, scope
from refine.web.audit_filters import FILTERS, actions_of_kind, views, visible_records
from refine.web.lists import Chosen, page_of
from refine.web.record_changes import memory_changes, subject_of
from refine.web.templating import verification_watch
from refine.web.words import labelled

pages = Blueprint("audit", __name__)

# A page must stay small, and an import's record holds hundreds of memories.
_MAX_JSON_CHARACTERS = 20_000

# What the list shows, without ``data``: that of an import's record is hundreds of memories.
_LISTED: tuple[Any, ...] = (
    AuditLog.id,
    AuditLog.sequence,
    AuditLog.action,
    case(
        (
            AuditLog.action == "memory_refinement_rollback",
            cast(AuditLog.data, JSONB)["operation"].astext,
        )
    ).label("operation"),
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
    agent, one_of = chosen["agent"], actions_of_kind(chosen)
    listed = select(*_LISTED).outerjoin(User).outerjoin(Agent)
    without = ("kind",) if one_of is not None else ()
    page = page_of(visible_records(chosen, listed, without=without), one_of=one_of)
    return render_template(
        "audit/page.html",
        page=page,
        records=page.rows,
        chosen=chosen,
        agent=agent,
        views=views(chosen),
        chain=_chain_of(agent) if agent else None,
        verification=None if agent else verification_watch().last,
    )


def _chain_of(agent: Agent) -> Any:
    since = (ChainHead.sequence - ChainHead.verified_sequence).label("records_since")
    columns = ChainHead.verified_at, ChainHead.verified_sequence, since
    return db.session.execute(select(*columns).where(ChainHead.is_of_agent(agent.id))).first()


@pages.get("/audit/<int:record_id>")
def record(record_id: int) -> str:
    found = scope.found_or_404(AuditLog, record_id)
    opened = granted.record(found.agent_id, record_id)
    data = _data(found)
    client = data.pop(CLIENT_KEY, None)
    if client is not None and scope.user().may_act:
        data[CLIENT_KEY] = client
    return render_template(
        "audit/record.html",
        record=found,
        opened=opened,
        client=data.get(CLIENT_KEY),
        subject=subject_of(found),
        changes=memory_changes(found),
        figures=_figures(data),
        raw=json.dumps(data, ensure_ascii=False, indent=2, sort_keys=True),
        max_characters=_MAX_JSON_CHARACTERS,
    )


def _data(record: AuditLog) -> dict[str, Any]:
    data: dict[str, Any] = mask_ids(shown_data(record))
    return data


def _figures(data: dict[str, Any]) -> list[tuple[str, Any]]:
    left_out = ("memories", "image_version", "operation", CLIENT_KEY)
    shown = {name: value for name, value in data.items() if name not in left_out}
    if "mass_after" in shown:
        shown["core memory afterwards"] = shown.pop("mass_after")
    if "cost_usd" in shown:
        unpriced = shown.get("unpriced_calls", 0)
        shown["cost"] = cost_in_words(Decimal(shown.pop("cost_usd")), unpriced)
    for name, (before, after) in shown.pop("changes", {}).items():
        shown[labelled(name)] = f"{before} → {after}"
    return sorted(shown.items())


# The exported fields besides ``data``, and their attributes.
_ATTRIBUTES = {
    "id": "id",
    "chain": "chain_id",
    "sequence": "sequence",
    "at": "created_at",
    "action": "action",
    "account_id": "account_id",
    "agent_id": "agent_id",
    "session_id": "session_id",
    "user_id": "user_id",
    "subject_type": "auditable_type",
    "subject_id": "auditable_id",
    "hash": "hash",
}
# So many are read from the database at a time.
_BATCH_ROWS = 500


@pages.get("/audit/export.jsonl")
def export() -> Response:
    chosen = Chosen(FILTERS)
    # asked before the response is sent
    shows_origin, records = scope.user().may_act, visible_records(chosen, select(AuditLog))
    account = None if scope.sees_all_accounts() else scope.account_to_change()
    recorded = AuditLog.record(
        "audit_exported",
        chain=account.chain if account is not None else PLATFORM,
        subject=("Account", account.id) if account is not None else None,
        user=scope.user(),
        data={"format": "jsonl", "filter": chosen.as_data()},
    )
    before = records.where(AuditLog.id < recorded.id).execution_options(yield_per=_BATCH_ROWS)
    db.session.commit()
    answer = Response(
        stream_with_context(_lines(before, shows_origin)), mimetype="application/jsonl"
    )
    filename = f"audit-{clock.now():%Y-%m-%d}.jsonl"
    answer.headers["Content-Disposition"] = f"attachment; filename={filename}"
    return answer


def _lines(records: Any, shows_origin: bool) -> Iterator[str]:
    """Read while the file is sent, in a database session of its own."""
    for record in db.session.scalars(records):
        row = {name: getattr(record, attribute) for name, attribute in _ATTRIBUTES.items()}
        row |= {"at": clock.iso(record.created_at), "data": _data(record)}
        if not shows_origin:
            row["data"].pop(CLIENT_KEY, None)
        yield json.dumps(row, ensure_ascii=False, default=str) + "\n"
