"""Anchors: the ends of all chains, kept on another machine to reveal a tail that was cut off; and
what was erased, so that a restore of an older backup can erase it again.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import select

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models.audit.record import AuditLog, ChainHead

FORMAT = "refine-anchor-1"


def anchor(at: datetime | None = None) -> dict[str, Any]:
    """Return the head of every chain with records (id, sequence and hash), and what was erased."""
    heads = db.session.scalars(
        select(ChainHead).where(ChainHead.sequence > 0).order_by(ChainHead.id)
    )
    return {
        "format": FORMAT,
        "at": clock.iso(at or clock.now()),
        "chains": [
            {"id": head.id, "name": head.name, "sequence": head.sequence, "hash": head.hash}
            for head in heads
        ],
        "erased": _erased(),
    }


def _erased() -> dict[str, list[int]]:
    agents = select(AuditLog.agent_id).filter_by(action="agent_erased")
    names = "memory_erased", "retention_erased"
    memories = select(AuditLog.data).where(AuditLog.action.in_(names))
    ids = {each["id"] for data in db.session.scalars(memories) for each in data["memories"]}
    return {"agents": sorted(db.session.scalars(agents)), "memories": sorted(ids)}


def read_anchor(text: str) -> dict[str, Any]:
    """Return the anchor in this JSON text; InvalidValue if there is none."""
    try:
        read = json.loads(text)
        if read["format"] != FORMAT:
            raise ValueError
        erased = [*read["erased"]["agents"], *read["erased"]["memories"]]
        if not all(type(id_) is int for id_ in erased):
            raise TypeError
        for chain in read["chains"]:
            if type(chain["id"]) is not int or type(chain["sequence"]) is not int:
                raise TypeError
            _ = chain["name"] + chain["hash"] + read["at"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise InvalidValue(
            "this is not an anchor; give a file printed by `refine audit anchor`"
        ) from None
    return dict(read)


def missing_since(anchored: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each chain that no longer holds its anchored record."""
    for chain in anchored["chains"]:
        anchored_record = select(AuditLog.hash).where(
            AuditLog.chain_id == chain["id"], AuditLog.sequence == chain["sequence"]
        )
        found = db.session.scalar(anchored_record)
        if found is None:
            yield f"{chain['name']}: anchored record {chain['sequence']} is missing"
        elif found != chain["hash"]:
            yield f"{chain['name']}: record {chain['sequence']} is not the one that was anchored"
