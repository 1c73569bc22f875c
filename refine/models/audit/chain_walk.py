"""Following a chain: every record in its place, unaltered, up to its head.

Records are read as plain rows: objects would take several times as long as the hashes.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, and_, cast, select

from refine.extensions import db, read_plainly
from refine.models.audit.chain import GENESIS, ChainHead, HeadValues
from refine.models.audit.checkpoint import Checkpoint, Position, places
from refine.models.audit.linking import LINK_CONTEXT, StoredRecord, link_text
from refine.models.audit.record import AuditLog
from refine.models.keys import WrappedKey

# How many records are read at once.
PAGE = 10_000

_RECORDS = AuditLog.__table__.c
_STORED: dict[str, ColumnElement[Any]] = {
    "data": cast(_RECORDS.data, Text),
    "rows": cast(_RECORDS.rows, Text),
    "sealed_text": _RECORDS.sealed,
}
_COLUMNS = [
    (_STORED[name] if name in _STORED else read_plainly(_RECORDS[name])).label(name)
    for name in StoredRecord._fields
]
# By so much a record may be dated before an earlier one of its chain. Its time is taken before it
# waits for locks, for 20 seconds at each, and by the clocks of several machines.
MAX_STEP_BACK = timedelta(minutes=5)
# A grant that has expired is recorded as of its end, whenever that is noticed.
_DATED_BACK = "memory_access_ended"
# No sequence is smaller.
_LOWEST = -(2**63)
# Before every record.
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class ChainBroken(Exception):
    """The first bad record of a chain, or the first row that does not match its records."""


class Walk:
    """A chain, as far as it was followed."""

    def __init__(
        self,
        at: Position | None = None,
        verified: Position | None = None,
        latest_at: datetime = _EARLIEST,
    ) -> None:
        """Begin at a position, or before the first record.

        ``verified`` is the position up to which the chain was verified before, ``latest_at`` the
        latest time of a record up to where it begins.
        """
        self.latest_at = latest_at
        self.sequence, self.link = at[:2] if at is not None else (0, GENESIS)
        self._verified_sequence, self._verified_hash = verified[:2] if verified else (0, GENESIS)
        self._platform = WrappedKey.platform_key()

    @property
    def reads_after(self) -> int:
        """The sequence to read after; at the start the lowest, so that every record is read."""
        return self.sequence or _LOWEST

    def follow(self, record: StoredRecord) -> None:
        """Continue with the next record; ChainBroken if it is not the one that must follow."""
        expected, hash_ = self.sequence + 1, record.hash
        if record.sequence != expected:
            raise ChainBroken(
                f"record {expected} is missing (the next one is {record.sequence}, id {record.id})"
            )
        if hash_ != self._platform.mac(link_text(self.link, record), LINK_CONTEXT):
            raise ChainBroken(f"record {expected} (id {record.id}) was altered, added or moved")
        if self.latest_at - record.created_at > MAX_STEP_BACK and record.action != _DATED_BACK:
            raise ChainBroken(
                f"record {expected} is dated before an earlier one: time ran backwards"
            )
        self.latest_at = max(self.latest_at, record.created_at)
        self.sequence, self.link = expected, hash_
        if expected == self._verified_sequence and hash_ != self._verified_hash:
            raise ChainBroken(f"record {expected} is not the one that was verified before")

    def end(self, head: HeadValues) -> None:
        """Compare with the chain's head, once every record was followed."""
        if (head.sequence, head.hash) != (self.sequence, self.link):
            raise ChainBroken(
                f"the chain ends at record {self.sequence}, its head says {head.sequence}"
            )
        if not head.is_genuine:
            raise ChainBroken("the chain's head was changed outside the application")
        if self.sequence < self._verified_sequence:
            raise ChainBroken(
                f"the chain ends at record {self.sequence}, "
                f"but {self._verified_sequence} were verified before"
            )


def page_after(chain_id: int, sequence: int) -> list[StoredRecord]:
    """Return the next records of one chain, in order."""
    mine = and_(AuditLog.chain_id == chain_id, AuditLog.sequence > sequence)
    page = select(*_COLUMNS).where(mine).order_by(AuditLog.sequence, AuditLog.id).limit(PAGE)
    return list(_stored(page))


def records_after(sequences: Mapping[int, int]) -> Iterator[StoredRecord]:
    """Yield the records of chains after a sequence of each, chain by chain, in order."""
    known = places(sequences)
    after = and_(AuditLog.chain_id == known.c.chain_id, AuditLog.sequence > known.c.sequence)
    records = select(*_COLUMNS).join(known, after)
    yield from _stored(records.order_by(AuditLog.chain_id, AuditLog.sequence, AuditLog.id))


def _stored(records: Select[Any]) -> Iterator[StoredRecord]:
    return map(StoredRecord._make, db.session.connection().execute(records).all())


def next_chains(after_id: int, *, at_most: int) -> list[int]:
    """Return the ids of the next chains, at most so many, with about a page of rows to read."""
    to_read = ChainHead.sequence + ChainHead.verified_memories
    following = select(ChainHead.id, to_read).where(ChainHead.id > after_id)
    chosen: list[int] = []
    total = 0
    for id_, rows in db.session.execute(following.order_by(ChainHead.id).limit(at_most)):
        total += rows
        if chosen and total > PAGE:
            break
        chosen.append(id_)
    return chosen


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


def mark_verified(
    positions: Mapping[int, Position], memories: Mapping[int, int], at: datetime
) -> None:
    """Store up to where chains were verified, and how many memories of each.

    A head that somebody else has locked is left for the next time, because its holder may wait for
    another head.
    """
    heads = db.session.scalars(
        select(ChainHead)
        .where(ChainHead.id.in_(positions))
        .order_by(ChainHead.id)
        .with_for_update(skip_locked=True)
        .execution_options(populate_existing=True)
    )
    # one that is not genuine was changed meanwhile; the next verification finds it
    genuine = [head for head in heads if head.is_genuine]
    for head in genuine:
        sequence = positions[head.id].sequence
        head.advance(
            verified_sequence=sequence, verified_memories=memories[head.id], verified_at=at
        )
    if genuine:
        Checkpoint.store({head.id: positions[head.id] for head in genuine})
