"""The part of an upgrade that needs the keys, which no migration has.

An upgrade that was cut off starts again.
"""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, select, update

from refine.extensions import db
from refine.models.agent import Agent
from refine.models.attested import (
    Attested,
    attested_columns,
    keyed_hash_of,
    plain_rows,
    signed,
)
from refine.models.attested_rows import attested_kinds
from refine.models.audit import PLATFORM, AuditLog, ChainHead
from refine.models.people import Account
from refine.models.unrecorded import ChainOwner

_BATCH = 500


def add_all_missing_digests() -> Iterator[int]:
    """Add digests to the rows and chains of an earlier version; yield how many so far.

    Once a chain is signed, nobody needs it: a row without a digest that appears later was not
    written by the application. All of it is one transaction, so that none is signed halfway.
    """
    if _is_attested():
        return
    done = 0
    for kind in attested_kinds():
        while batch := add_missing_digests(
            db.session.connection(), kind, _BATCH, plain_hashes=kind.hashes
        ):
            yield (done := done + batch)
    for head in db.session.scalars(select(ChainHead)).all():
        head.advance()
    ChainHead.begin(PLATFORM.chain_owner)
    for owner_id in db.session.scalars(select(Account.id)).all():
        ChainHead.begin(ChainOwner(account_id=owner_id))
    for owner_id in db.session.scalars(select(Agent.id)).all():
        ChainHead.begin(ChainOwner(agent_id=owner_id))
    AuditLog.record("rows_attested", chain=PLATFORM, data={"rows": done})
    db.session.commit()


def add_missing_digests(
    connection: Connection, kind: type[Attested], limit: int, *, plain_hashes: Sequence[str] = ()
) -> int:
    """Add digests to the next rows without one, as they are; return how many.

    ``plain_hashes`` are attributes with plain hashes of secrets, which become keyed ones.
    """
    columns = attested_columns(kind)
    table = columns["id"].table
    without = plain_rows(kind).where(columns["row_digest"].is_(None)).order_by(columns["id"])
    rows = connection.execute(without.limit(limit).with_for_update()).all()
    for row in rows:
        values = row._asdict()
        hashed = {
            name: keyed_hash_of(values[name], f"{table.name}.{name}") for name in plain_hashes
        }
        connection.execute(
            update(table).where(columns["id"] == row.id).values(signed(kind, values, **hashed))
        )
    return len(rows)


def _is_attested() -> bool:
    signed = select(ChainHead.id).where(ChainHead.digest.is_not(None))
    with_digests = select(AuditLog.id).where(AuditLog.rows.is_not(None))
    return any(db.session.scalar(found.limit(1)) is not None for found in (signed, with_digests))
