"""Anchors: where every chain stood at one time, to be kept somewhere else.

A chain whose end was cut off still verifies by itself. Against an anchor that was taken before,
the records that are gone show.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import select

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import db
from refine.models.audit import AuditLog, ChainHead
from refine.models.image import iso

FORMAT = "refine-anchor-1"


def anchor(at: datetime | None = None) -> dict[str, Any]:
    """Return the head of every chain that has records: its id, sequence and hash, no content."""
    heads = db.session.scalars(
        select(ChainHead).where(ChainHead.sequence > 0).order_by(ChainHead.id)
    )
    return {
        "format": FORMAT,
        "at": iso(at or clock.now()),
        "chains": [
            {"id": head.id, "name": head.name, "sequence": head.sequence, "hash": head.hash}
            for head in heads
        ],
    }


def read_anchor(text: str) -> dict[str, Any]:
    """Return the anchor that ``anchor`` made, from its JSON; InvalidValue if it is none."""
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
            "this is no anchor; give a file that `refine audit anchor` printed"
        ) from None
    return dict(read)


def missing_since(anchored: dict[str, Any]) -> Iterator[str]:
    """Yield, in words, each chain that does not hold the record at which it was anchored."""
    for chain in anchored["chains"]:
        at_its_place = select(AuditLog.hash).where(
            AuditLog.chain_id == chain["id"], AuditLog.sequence == chain["sequence"]
        )
        found = db.session.scalar(at_its_place)
        if found is None:
            yield f"{chain['name']}: record {chain['sequence']}, which the anchor saw, is gone"
        elif found != chain["hash"]:
            yield f"{chain['name']}: record {chain['sequence']} is not the one that the anchor saw"
