"""Walking a chain: every record in its place, unaltered, up to the chain's head.

Records are read as plain rows: entities would take several times as long as the hashes.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import case as sql_case
from sqlalchemy import select, update

from refine.extensions import db
from refine.models.audit.chain import GENESIS, ChainHead
from refine.models.audit.record import AuditLog, link_hash, plain_records
from refine.models.keys import WrappedKey

# How many rows are fetched at once.
PAGE = 1_000

# By so much a record may be dated before an earlier one of its chain. Its time is taken before it
# waits for locks, for 20 seconds at each, and by the clocks of several machines.
MAX_STEP_BACK = timedelta(minutes=5)
# A grant that has expired is recorded as of its end, whenever that is noticed.
_DATED_BACK = "memory_access_ended"


class ChainBroken(Exception):
    """The first bad record of a chain, or the first row that does not match its records."""


class Walk:
    """One chain, as far as it was walked."""

    def __init__(self) -> None:
        self.sequence, self._hash = 0, GENESIS
        self._latest_at = datetime.min.replace(tzinfo=UTC)
        self._platform = WrappedKey.platform_key()

    def follow(self, record: Any) -> None:
        """Take the next record; ChainBroken if it is not the one that must follow."""
        expected = self.sequence + 1
        if record.sequence != expected:
            raise ChainBroken(
                f"record {expected} is missing (the next one is {record.sequence}, id {record.id})"
            )
        if record.hash != link_hash(self._hash, record._mapping, self._platform):
            raise ChainBroken(f"record {expected} (id {record.id}) was altered, added or moved")
        if self._latest_at - record.created_at > MAX_STEP_BACK and record.action != _DATED_BACK:
            raise ChainBroken(
                f"record {expected} is dated before an earlier one: time ran backwards"
            )
        self._latest_at = max(self._latest_at, record.created_at)
        self.sequence, self._hash = expected, record.hash

    def end(self, head: ChainHead) -> None:
        """Compare with the chain's head, after the last record."""
        if (head.sequence, head.hash) != (self.sequence, self._hash):
            raise ChainBroken(
                f"the chain ends at record {self.sequence}, its head says {head.sequence}"
            )
        if not head.is_genuine:
            raise ChainBroken("the chain's head was changed outside the application")
        if self.sequence < head.verified_sequence:
            raise ChainBroken(
                f"the chain ends at record {self.sequence}, "
                f"but {head.verified_sequence} were verified before"
            )


def records_of(chain_ids: Collection[int]) -> Iterator[Any]:
    """Yield the records of these chains, chain by chain, in order."""
    mine = plain_records().where(AuditLog.chain_id.in_(chain_ids))
    in_order = mine.order_by(AuditLog.chain_id, AuditLog.sequence, AuditLog.id)
    options = {"yield_per": PAGE}
    with db.session.connection().execute(in_order, execution_options=options) as found:
        yield from found


def next_chains(after_id: int, *, chains: int, records: int) -> list[int]:
    """Return the ids of the next chains: at most so many, with about so many records."""
    following = select(ChainHead.id, ChainHead.sequence).where(ChainHead.id > after_id)
    chosen: list[int] = []
    for id_, length in db.session.execute(following.order_by(ChainHead.id).limit(chains)):
        records -= length
        if chosen and records < 0:
            break
        chosen.append(id_)
    return chosen


def mark_verified(lengths: dict[int, int], at: datetime) -> None:
    """Store how many records of each of these chains were verified, by id of the chain.

    A head that somebody has locked is left for the next time: its holder may wait for another.
    """
    if not lengths:
        return
    unlocked = select(ChainHead.id).where(ChainHead.id.in_(lengths))
    marked = (
        update(ChainHead)
        .where(ChainHead.id.in_(unlocked.with_for_update(skip_locked=True)))
        .values(verified_sequence=sql_case(lengths, value=ChainHead.id), verified_at=at)
    )
    db.session.execute(marked, execution_options={"synchronize_session": False})


def headless_chains() -> Iterator[int]:
    """Yield the ids of chains that have records but no head."""
    headless = select(AuditLog.chain_id).where(AuditLog.chain_id.not_in(select(ChainHead.id)))
    yield from db.session.scalars(headless.distinct())
