"""One memory: its versions, what it was merged from and into, and its buttons; unseen."""

from collections.abc import Sequence
from typing import NamedTuple

from flask import Blueprint, render_template
from sqlalchemy.orm import joinedload

from refine.extensions import db
from refine.models import AuditLog
from refine.models.ledger.history import records_of_memory
from refine.web import granted, scope
from refine.web.ledger import memory_or_404
from refine.web.presenting import MemoryChange, memory_changes

pages = Blueprint("memory", __name__)


class Version(NamedTuple):
    """What a record did to the memory; the text only under a grant."""

    record: AuditLog
    change: MemoryChange
    merged_from: Sequence[int]
    merged_into: Sequence[int]
    text: granted.ReadableChange | None


@pages.get("/agents/<int:agent_id>/memories/<int:memory_id>")
def page(agent_id: int, memory_id: int) -> str:
    """Show a memory's versions; their texts only under an active grant."""
    opened = granted.versions(agent_id, memory_id)  # first, as reading commits
    memory = memory_or_404(agent_id, memory_id)
    records = db.session.scalars(
        records_of_memory(memory).options(joinedload(AuditLog.user)).limit(granted.MAX_RECORDS)
    ).all()
    texts = opened.changes if opened is not None else {}
    return render_template(
        "memory/page.html",
        agent=scope.agent_or_404(agent_id),
        memory=memory,
        opened=opened,
        versions=[_version(memory_id, record, texts.get(record.id)) for record in records],
        has_earlier=len(records) == granted.MAX_RECORDS,
    )


def _version(memory_id: int, record: AuditLog, text: granted.ReadableChange | None) -> Version:
    changes = {change.id: change for change in memory_changes(record)}
    is_merge = record.action == "memory_refinement_consolidate"
    others = [id_ for id_ in changes if id_ != memory_id] if is_merge else []
    is_result = changes[memory_id].is_new
    return Version(
        record,
        changes[memory_id],
        merged_from=others if is_result else [],
        merged_into=[id_ for id_ in others if changes[id_].is_new] if not is_result else [],
        text=text,
    )
