"""Changes of attested rows that no record covers yet, of the transaction of each session."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from sqlalchemy import event, inspect
from sqlalchemy.orm import Session

from refine.extensions import db
from refine.models.columns import DigestChange

_CHANGED = "refine.unrecorded.changed"


class ChainOwner(NamedTuple):
    """The owner of the chain that records changes of a row: an agent or an account."""

    account_id: int | None = None
    agent_id: int | None = None


class AttestedRow(Protocol):
    """The part of an ``Attested`` row that tells which record covers its changes."""

    row_digest: Any
    status: Any

    @property
    def statuses_without_records(self) -> Sequence[str]: ...
    @property
    def chain_owner(self) -> ChainOwner | None: ...
    @property
    def row_name(self) -> str: ...


class _Change(NamedTuple):
    """A row that changed in this transaction, and its digest before the first change."""

    row: AttestedRow
    is_update: bool
    before: str | None


def note_change(row: AttestedRow, *, is_update: bool, before: str | None = None) -> None:
    """Note for the next record that the row, whose digest was ``before``, was added or changed."""
    if row.chain_owner is None:
        return
    if row.statuses_without_records and row.status in row.statuses_without_records:
        return
    changed = _changed(db.session())
    first = changed.get(row.row_name, _Change(row, is_update, before))
    changed[row.row_name] = _Change(row, is_update or first.is_update, first.before)


def changed_rows(owner: ChainOwner) -> dict[str, DigestChange]:
    """Return how this owner's rows changed since its last record, by row name.

    Marks them as recorded, so call it only while writing a record, after a flush, and not inside a
    savepoint.
    """
    changed = _changed(db.session())
    mine = [name for name, change in changed.items() if change.row.chain_owner == owner]
    changes = {name: changed.pop(name) for name in mine}
    digests = {
        name: (change.before, None if inspect(change.row).deleted else change.row.row_digest)
        for name, change in changes.items()
        if inspect(change.row).persistent or inspect(change.row).deleted
    }
    # a savepoint that was rolled back took its changes back
    return {name: (before, after) for name, (before, after) in digests.items() if before != after}


def unrecorded_updates(session: Session) -> dict[ChainOwner, list[str]]:
    """Return the names of updated rows that no record covers yet, by owner."""
    unrecorded: dict[ChainOwner, list[str]] = {}
    for name, (row, is_update, _) in _changed(session).items():
        if is_update and inspect(row).persistent and row.chain_owner is not None:
            unrecorded.setdefault(row.chain_owner, []).append(name)
    return unrecorded


def _changed(session: Session) -> dict[str, _Change]:
    changed: dict[str, _Change] = session.info.setdefault(_CHANGED, {})
    return changed


@event.listens_for(Session, "after_commit")
@event.listens_for(Session, "after_rollback")
def _forget_changes(session: Session) -> None:
    if not session.in_nested_transaction():
        session.info.pop(_CHANGED, None)
