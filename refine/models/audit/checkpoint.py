"""Checkpoints: up to where each chain was verified, so that the next verification continues there.

Somebody who can write to the database could move a checkpoint, or put back an older one. So it
carries a keyed digest over its place, and counts only while the chain still has the record there,
and as many records before it. An older one only means more work. What it cannot show is a record
before it whose content was changed: that is found when the chain is verified in full.
"""

import hashlib
import json
import zlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ForeignKey,
    LargeBinary,
    TableValuedAlias,
    Text,
    cast,
    func,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column

from refine.extensions import Base, columns_json, db
from refine.models.audit.record import AuditLog
from refine.models.keys import WrappedKey

_CONTEXT = "chain_checkpoints.digest"


class Position(NamedTuple):
    """A place in a chain, and what its records up to there left."""

    sequence: int
    hash: str
    left_digests: bytes
    """The digests of rows as the last record left them, packed."""


class Checkpoint(Base):
    """The place up to which a chain was verified."""

    __tablename__ = "chain_checkpoints"

    chain_id: Mapped[int] = mapped_column(ForeignKey("chain_heads.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger)
    hash: Mapped[str] = mapped_column(Text)
    left_digests: Mapped[bytes] = mapped_column(LargeBinary)
    digest: Mapped[str] = mapped_column(Text)

    @classmethod
    def store(cls, positions: Mapping[int, Position]) -> None:
        """Note the place up to which each of these chains was verified."""
        adding = insert(cls).values(
            [
                {"chain_id": id_, "digest": _digest(id_, at), **at._asdict()}
                for id_, at in positions.items()
            ]
        )
        columns = [column for column in cls.__table__.c if not column.primary_key]
        new = {column.name: adding.excluded[column.name] for column in columns}
        is_new = or_(*(column != new[column.name] for column in columns))
        changed = adding.on_conflict_do_update(index_elements=["chain_id"], set_=new, where=is_new)
        db.session.execute(changed)

    @classmethod
    def of(cls, chain_ids: Collection[int]) -> "dict[int, Checkpoint]":
        """Return the checkpoints of these chains by id of the chain, as far as there are any."""
        mine = select(cls).where(cls.chain_id.in_(chain_ids))
        rows = db.session.scalars(mine.execution_options(populate_existing=True))
        return {each.chain_id: each for each in rows}

    @property
    def position(self) -> Position:
        """The place."""
        return Position(self.sequence, self.hash, self.left_digests)

    @property
    def is_genuine(self) -> bool:
        """Whether it is as the application left it."""
        return self.digest == _digest(self.chain_id, self.position)


def still_there(positions: Mapping[int, Position]) -> set[int]:
    """Return the chains that still have the record of their position, and all before it."""
    at = places({id_: each.sequence for id_, each in positions.items()})
    mine = AuditLog.chain_id == at.c.chain_id
    count = select(func.count()).where(mine, AuditLog.sequence <= at.c.sequence)
    last = select(AuditLog.hash).where(mine, AuditLog.sequence == at.c.sequence)
    found = select(at.c.chain_id, count.scalar_subquery(), last.scalar_subquery())
    return {
        id_
        for id_, records, hash_ in db.session.execute(found)
        if (records, hash_) == positions[id_][:2]
    }


def places(sequences: Mapping[int, int]) -> TableValuedAlias:
    """Return a sequence of each chain as a table of ``chain_id`` and ``sequence``."""
    columns = (list(sequences), list(sequences.values()))
    arrays = func.unnest(*(cast(each, ARRAY(BigInteger)) for each in columns))
    return arrays.table_valued("chain_id", "sequence").render_derived()


def packed(left: Any) -> bytes:
    """Return a JSON value in few bytes."""
    return zlib.compress(columns_json(left).encode(), level=1)


def unpacked(left: bytes) -> Any:
    """Return what was packed."""
    return json.loads(zlib.decompress(left))


def _digest(chain_id: int, at: Position) -> str:
    parts = [chain_id, at.sequence, at.hash, hashlib.sha256(at.left_digests).hexdigest()]
    return WrappedKey.platform_key().mac(columns_json(parts), _CONTEXT)
