"""Following a chain: every record in its place, unaltered, up to its head."""

from collections.abc import Generator, Iterator
from datetime import datetime

from sqlalchemy import Text, and_, cast, select
from sqlalchemy.orm import undefer

from refine.extensions import db
from refine.models.audit.record import GENESIS, AuditLog, ChainHead
from refine.models.keys import WrappedKey

_BATCH = 500


class ChainBroken(Exception):
    """The first bad record of a chain, or the first row that does not match its records."""


def verified_records(head: ChainHead) -> Generator[AuditLog, None, None]:
    """Yield the chain's records in order; ChainBroken at the first one that is wrong."""
    platform = WrappedKey.platform_key()
    sequence, link = 0, GENESIS
    chain = (
        select(AuditLog, cast(AuditLog.data, Text).label("data_text"))
        .options(undefer(AuditLog.sealed_text))
        .where(AuditLog.chain_id == head.id)
        .order_by(AuditLog.sequence, AuditLog.id)
        .execution_options(yield_per=_BATCH)
    )
    with db.session.execute(chain) as rows:
        for record, data in rows:
            sequence += 1
            if record.sequence != sequence:
                raise ChainBroken(
                    f"record {sequence} is missing "
                    f"(the next one is {record.sequence}, id {record.id})"
                )
            if record.hash != record.link(platform, link, data):
                raise ChainBroken(f"record {sequence} (id {record.id}) was altered, added or moved")
            link = record.hash
            yield record
    if (head.sequence, head.hash) != (sequence, link):
        raise ChainBroken(f"the chain ends at record {sequence}, its head says {head.sequence}")
    if not head.is_genuine:
        raise ChainBroken("the chain's head was changed outside the application")


def headless_chains() -> Iterator[int]:
    """Yield the ids of chains that have records but no head."""
    headless = select(AuditLog.chain_id).where(AuditLog.chain_id.not_in(select(ChainHead.id)))
    yield from db.session.scalars(headless.distinct())


def is_platform_chain_lost() -> bool:
    """Whether there are chains, but not the platform's, which begins with the first of them."""
    platform = and_(ChainHead.account_id.is_(None), ChainHead.agent_id.is_(None))
    has_others, has_platform = (
        db.session.scalar(select(ChainHead.id).where(mine).limit(1)) is not None
        for mine in (~platform, platform)
    )
    return has_others and not has_platform


def mark_verified(chain_id: int, records: int, memories: int, at: datetime) -> None:
    """Store that the first ``records`` records of a chain, and so many memories, were verified."""
    head = db.session.get_one(ChainHead, chain_id, with_for_update=True, populate_existing=True)
    if head.is_genuine:  # or else it was changed meanwhile, which the next verification finds
        head.advance(verified_sequence=records, verified_memories=memories, verified_at=at)
