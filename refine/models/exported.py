"""The fields of an audit record as pages show and export them."""

from collections.abc import Callable
from typing import Any

from refine.models.audit import AuditLog
from refine.models.ledger.history import shown_data
from refine.rules.personal import mask_ids


def exported_data(record: AuditLog) -> dict[str, Any]:
    """Return the open data of a record, as everybody who may see the record may see it."""
    data: dict[str, Any] = mask_ids(shown_data(record))
    return data


EXPORTED: dict[str, Callable[[AuditLog], Any]] = {
    "id": lambda record: record.id,
    "chain": lambda record: record.chain_id,
    "sequence": lambda record: record.sequence,
    "at": lambda record: record.created_at,
    "action": lambda record: record.action,
    "account_id": lambda record: record.account_id,
    "agent_id": lambda record: record.agent_id,
    "session_id": lambda record: record.session_id,
    "user_id": lambda record: record.user_id,
    "subject_type": lambda record: record.auditable_type,
    "subject_id": lambda record: record.auditable_id,
    "data": exported_data,
    "hash": lambda record: record.hash,
}
