"""Anchors: the ends of all chains, kept on another machine to reveal a tail that was cut off."""

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
    """Return the head of every chain with records: its id, sequence and hash."""
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
    }


def read_anchor(text: str) -> dict[str, Any]:
    """Return the anchor in this JSON text; InvalidValue if there is none."""
    try:
        read = json.loads(text)
        if read["format"] != FORMAT:
            raise ValueError
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
