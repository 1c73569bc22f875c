"""Images as version 1 stored them: with every field, before and after."""

from collections.abc import Iterable
from typing import Any

from refine.extensions import canonical_json
from refine.models import AuditLog
from refine.models.columns import place_of
from refine.models.ledger import Change, Image, changes_in, state_digest
from refine.sealing import DataKey
from tests import sql


def recorded(changes: Iterable[Change], key: DataKey) -> tuple[dict[str, Any], dict[str, Any]]:
    """Changes as the data and the sealed part of a record."""
    each = [(one.memory_id, _parts(one.before, key), _parts(one.after, key)) for one in changes]
    public = [{"id": id_, "before": old[0], "after": new[0]} for id_, old, new in each]
    sealed = [{"id": id_, "before": old[1], "after": new[1]} for id_, old, new in each]
    return {"image_version": 1, "memories": public}, {"memories": sealed}


def store(record: AuditLog) -> None:
    """Store the images of a record in this way."""
    key = record.agent.data_key()
    data, sealed = recorded(changes_in(record.data, record.sealed), key)
    contents = key.seal(canonical_json({**record.sealed, **sealed}), place_of(record, "sealed"))
    sql.tamper(
        f"UPDATE audit_logs SET data = '{canonical_json({**record.data, **data})}', "
        f"sealed = '\\x{contents.hex()}' WHERE id = {record.id}"
    )


def _parts(image: Image | None, key: DataKey) -> tuple[Image | None, Image | None]:
    if image is None:
        return None, None
    shown = {**image, "digest": state_digest(image, key), "content_hash": "h", "agent_id": 3}
    return shown, {field: shown.pop(field) for field in ("content", "extra")}
