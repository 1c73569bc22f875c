"""The agent's own audit records: all that was ever done to what it keeps, and by whom."""

from typing import Any

from flask import Response
from sqlalchemy import select
from sqlalchemy.orm import undefer

from refine import clock
from refine.api.paging import PAGED, page_of
from refine.api.routing import Answer, given, operation
from refine.models import Agent, AuditLog

# What these seal are the words of a human: what they looked for, what they noted.
_OF_OTHERS = "memory_access_"


@operation(
    "GET",
    "/audit",
    bearer="agent",
    query={**PAGED, "action": {"type": "string", "minLength": 1}},
    answers={200: Answer("A page of them.", "Records")},
)
def audit(agent: Agent, query: dict[str, Any]) -> Response:
    """The agent's records, newest first, contents before and after included: they are its own."""
    wanted = (
        select(AuditLog)
        .options(undefer(AuditLog.sealed_text))
        .where(AuditLog.agent_id == agent.id)
        .order_by(AuditLog.sequence.desc())
    )
    if "action" in query:
        wanted = wanted.where(AuditLog.action == query["action"])
    return given(page_of(wanted, query, "records", _shown))


def _shown(record: AuditLog) -> dict[str, Any]:
    return {
        "id": record.id,
        "sequence": record.sequence,
        "action": record.action,
        "subject_type": record.auditable_type,
        "subject_id": record.auditable_id,
        "session_id": str(record.session_id) if record.session_id is not None else None,
        "user_id": record.user_id,
        "data": record.data,
        "sealed": {} if record.action.startswith(_OF_OTHERS) else record.sealed,
        "created_at": clock.iso(record.created_at),
        "hash": record.hash,
    }
