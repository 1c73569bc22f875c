"""Security-relevant rows: each carries a keyed digest.

Someone who can write to the database but has no keys cannot forge or change such a row: the digest
would not match, and the row would be rejected. Audit records keep the digests of the rows that they
are about, before and after, so that ``refine audit verify`` detects an older version of a row that
was put back, even if the application has changed it since.
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from hashlib import sha256
from hmac import compare_digest
from typing import Any, ClassVar, cast

import structlog
from sqlalchemy import Connection, Numeric, Row, Select, Text, event, inspect, select
from sqlalchemy.orm import (
    InstanceState,
    Mapped,
    Mapper,
    Session,
    mapped_column,
)

from refine import clock
from refine.errors import RowAltered
from refine.extensions import columns_json, db
from refine.models.columns import row_id
from refine.models.keys import WrappedKey
from refine.models.unrecorded import ChainOwner, note_change
from refine.rules.secrets import hash_of

_log = structlog.get_logger(__name__)

_CONTEXT = "row"
_IS_GENUINE = "refine.attested.is_genuine"
_IS_LOCKED = "refine.attested.is_locked"
_RELOADING = "refine.attested.reloading"
_RELIED_ON = "refine.attested.relied_on"
# What JSON holds as it is.
_JSON = (str, int, bool, type(None))


class Attested:
    """A row with a keyed digest over the columns ``digest_columns``.

    Every flush sets the digest, and refuses to change a row that did not match its own before.
    """

    # The attributes that the digest covers, the primary key among them.
    digest_columns: ClassVar[tuple[str, ...]]
    # The statuses in which it changes too often for records to keep its digest.
    statuses_without_records: ClassVar[tuple[str, ...]] = ()
    id: Any
    status: Any
    __tablename__: str
    __mapper__: ClassVar[Mapper[Any]]

    row_digest: Mapped[str | None] = mapped_column(Text)

    @property
    def chain_owner(self) -> ChainOwner | None:
        """The owner of the chain that records changes of the row; None if they are not recorded."""
        return None

    @property
    def _checked(self) -> tuple[str, ...]:
        return (*self.digest_columns, "row_digest")

    @property
    def _is_loaded(self) -> bool:
        return bool(inspect(self).unloaded.isdisjoint(self._checked))

    @property
    def row_name(self) -> str:
        """The row as messages and records name it, such as ``User 7``."""
        return f"{type(self).__name__} {self.id}"

    @property
    def is_genuine(self) -> bool:
        """Whether the row is as the application left it.

        A row with changes that are not flushed yet is checked by the flush.
        """
        state = inspect(self)
        if state.modified and not state.committed_state.keys().isdisjoint(self.digest_columns):
            return True
        if _IS_GENUINE not in state.info:
            if not self._matches() and state.persistent and not state.info.get(_RELOADING):
                # its parts may have been loaded before and after a change: all at one moment
                state.info[_RELOADING] = True
                try:
                    with db.session.no_autoflush, suppress(RowAltered):
                        db.session.refresh(self, self._checked)
                finally:  # the database may have gone away: who tries again loads it again
                    del state.info[_RELOADING]
            state.info[_IS_GENUINE] = self._matches()
        return bool(state.info[_IS_GENUINE])

    def _matches(self) -> bool:
        key = inspect(self).key
        is_itself = key is None or key[1] == (self.id,)  # a reload may have found another row
        return is_itself and self._is_loaded and _are_equal(self.row_digest, self.digest_of_row())

    def require_genuine(self, **values: object) -> None:
        """Raise RowAltered if the row was changed outside the application, or lacks these values.

        ``values`` are those by which SQL found the row: an operator that its owner put in the way
        of PostgreSQL's own can find any other.

        From then on every load of the row is checked for changes, until this database session
        rolls back. (A row whose deferred columns are not loaded yet is checked as soon as it is
        asked for again.)
        """
        state = inspect(self)
        if state.session is not None and state.key is not None:
            state.session.info.setdefault(_RELIED_ON, set()).add(state.key)
        if not self.is_genuine or not all(
            compare_digest(str(getattr(self, name)).encode(), str(value).encode())
            for name, value in values.items()
        ):
            raise RowAltered(self.row_name)

    def require_own(self, *relations: str) -> None:
        """Raise RowAltered unless the rows that SQL joined are genuine, and those of this row."""
        for name in relations:
            getattr(self, name).require_genuine(id=getattr(self, f"{name}_id"))

    def log_if_altered(self) -> bool:
        """Log the row's name if it was changed outside the application; tell whether it was.

        For what ends many rows: one that was altered opens nothing, and keeps no other from ending.
        """
        if is_altered := not self.is_genuine:
            _log.warning("a row was altered", row=self.row_name)
        return is_altered

    def lock(self) -> None:
        """Lock and reload this row until the transaction ends."""
        db.session.flush()  # a refresh drops what was not written yet
        db.session.refresh(self, with_for_update={"key_share": True})

    def note_lock(self) -> None:
        """Note that the row is locked as it was just loaded, until the transaction ends.

        A change of it then need not read it again. Not inside a savepoint, which may let go of the
        lock before.
        """
        state = inspect(self)
        if state.session is not None and not state.session.in_nested_transaction():
            state.info[_IS_LOCKED] = True

    def digest_of_row(self) -> str:
        """Return the digest that the row must carry."""
        return _digest(type(self), {name: getattr(self, name) for name in self.digest_columns})


def attested_columns(kind: type[Attested]) -> dict[str, Any]:
    """Return the columns that tell whether a row is genuine, by attribute."""
    columns = kind.__mapper__.columns
    return {name: columns[name] for name in (*kind.digest_columns, "row_digest")}


def require_genuine_values(kind: type[Attested], values: Mapping[str, Any]) -> None:
    """Raise RowAltered unless ``values`` of ``attested_columns`` are as the application left them.

    For who reads a row without making an entity of it.
    """
    if not _are_equal(values["row_digest"], _digest(kind, values)):
        raise RowAltered(f"{kind.__name__} {values['id']}")


def _are_equal(kept: str | None, expected: str) -> bool:
    """Compare digests in a time that does not tell how much of a forged one is right."""
    return kept is not None and compare_digest(kept.encode(), expected.encode())


def signed(kind: type[Attested], values: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
    """Return the changed values of a genuine row with its new digest, by attribute."""
    return {**changed, "row_digest": _digest(kind, {**values, **changed})}


def keyed_hash(secret: str, context: str) -> str:
    """Return the keyed hash under which a random secret is stored and looked up."""
    return WrappedKey.platform_key().mac(hash_of(secret), context)


def plain_rows(kind: type[Attested], *columns: Any) -> Select[Any]:
    """Return the query of rows as they are stored, without objects, and of further columns."""
    attested = attested_columns(kind).items()
    return select(*(column.label(name) for name, column in attested), *columns)


def plain_digest(kind: type[Attested], row: Row[Any]) -> str:
    """Return the digest that a row must carry, read by column as ``plain_rows`` does."""
    return _digest(kind, row._asdict())


# -- the text of a row ---------------------------------------------------------------------------


def _digest(kind: type[Attested], values: Mapping[str, Any]) -> str:
    columns = {
        name: value if type(value) in _JSON and scale is None else _as_stored(value, scale)
        for name, scale in _covered(cast(Any, kind))
        for value in (values[name],)
    }
    text = columns_json([kind.__tablename__, columns])
    return WrappedKey.platform_key().mac(text, _CONTEXT)


@cache
def _covered(kind: Any) -> list[tuple[str, int | None]]:
    """Each attribute that the digest covers, and its decimals."""
    types = {name: _column(kind, name).type for name in kind.digest_columns}
    return [
        (name, type_.scale if isinstance(type_, Numeric) else None) for name, type_ in types.items()
    ]


def _as_stored(value: Any, scale: int | None) -> Any:
    """Return a column's value as it comes back from the database, as JSON."""
    if value is not None and scale is not None:
        # PostgreSQL rounds halves away from zero
        exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        return format(exact, "f")
    match value:
        case datetime():
            return clock.iso(value)
        case uuid.UUID():
            return str(value)
        case bytes():
            return sha256(value).hexdigest()
    return value


def _column(kind: type[Attested], name: str) -> Any:
    return inspect(kind).attrs[name].columns[0]


# -- what every flush does -----------------------------------------------------------------------


@event.listens_for(Attested, "before_insert", propagate=True)
def _digest_new_row(_mapper: Mapper[Any], connection: Connection, row: Attested) -> None:
    """The digest covers the id and the defaults, so they must be known before the INSERT."""
    for name in row.digest_columns:
        default = _column(type(row), name).default
        if getattr(row, name) is None and default is not None:
            setattr(row, name, default.arg(None) if default.is_callable else default.arg)
    row_id(row, connection)
    row.row_digest = row.digest_of_row()
    note_change(row, is_update=False)


@event.listens_for(Attested, "before_update", propagate=True)
def _digest_changed_row(_mapper: Mapper[Any], connection: Connection, row: Attested) -> None:
    state = inspect(row)
    changed = [name for name in row.digest_columns if state.attrs[name].history.has_changes()]
    if not changed:
        return
    stored = _committed(row) or _stored(connection, row)
    before = stored.pop("row_digest")
    if not _are_equal(before, _digest(type(row), stored)):
        raise RowAltered(row.row_name)
    row.row_digest = _digest(type(row), stored | {name: getattr(row, name) for name in changed})
    note_change(row, is_update=True, before=before)


@event.listens_for(Attested, "before_delete", propagate=True)
def _note_deleted_row(_mapper: Mapper[Any], _connection: Connection, row: Attested) -> None:
    note_change(row, is_update=False, before=row.row_digest)


def _committed(row: Attested) -> dict[str, Any] | None:
    """Return a locked row as it was loaded or last flushed; None unless all of it is known."""
    state = inspect(row)
    if _IS_LOCKED not in state.info or not row._is_loaded:
        return None
    known = {}
    for name in row._checked:
        history = state.attrs[name].history
        stored = history.deleted or history.unchanged
        if not stored:
            return None
        known[name] = stored[0]
    return known


def _stored(connection: Connection, row: Attested) -> dict[str, Any]:
    """Lock the row and return it as it is stored: another transaction may have changed it."""
    kind = type(row)
    mine = plain_rows(kind).where(_column(kind, "id") == row.id)
    found = connection.execute(mine.with_for_update(key_share=True))
    return dict(found.one()._mapping)


@event.listens_for(Attested, "load", propagate=True, raw=True)
@event.listens_for(Attested, "refresh", propagate=True, raw=True)
def _check_loaded(state: InstanceState[Any], _context: Any, _attributes: Any = None) -> None:
    state.info.pop(_IS_GENUINE, None)
    relied_on = state.session.info.get(_RELIED_ON, ()) if state.session is not None else ()
    row = state.obj()
    if state.key in relied_on and row is not None and row._is_loaded:
        row.require_genuine()


@event.listens_for(Attested, "expire", propagate=True, raw=True)
def _check_expired(state: InstanceState[Any], attributes: Any) -> None:
    state.info.pop(_IS_GENUINE, None)
    if attributes is None:  # all of them: the transaction has ended
        state.info.pop(_IS_LOCKED, None)


@event.listens_for(Session, "after_rollback")
def _rely_on_nothing(session: Session) -> None:
    if not session.in_nested_transaction():
        session.info.pop(_RELIED_ON, None)
