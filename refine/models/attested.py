"""Rows with a keyed digest, which nobody without the keys can forge or change. Audit records
keep the digests before and after, so that verification finds an older version put back.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from hashlib import sha256
from hmac import compare_digest
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import structlog
from sqlalchemy import (
    ARRAY,
    Column,
    Connection,
    Insert,
    LargeBinary,
    Numeric,
    Row,
    Select,
    Table,
    Text,
    TypeCoerce,
    Update,
    Uuid,
    bindparam,
    event,
    insert,
    inspect,
    select,
    type_coerce,
    update,
)
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.orm import (
    InstanceState,
    Mapped,
    Mapper,
    Session,
    make_transient_to_detached,
    mapped_column,
)
from sqlalchemy.orm.base import NO_VALUE
from sqlalchemy.types import NULLTYPE

from refine import clock
from refine.errors import ChangedMeanwhile, RowAltered
from refine.extensions import UtcDateTime, canonical_json, copy_rows, db
from refine.models.columns import DigestChange
from refine.models.keys import WrappedKey, row_id
from refine.sealing import DataKey

_log = structlog.get_logger(__name__)

_CONTEXT = "row"
DIGEST = "row_digest"
_CHANGED = "refine.changed_rows"
# In the state of a row that matched its digest, until it is loaded again.
_MATCHED = "refine.matched"

OfClass = TypeVar("OfClass", bound=Callable[[Any], Any])


def _once_per_class(function: OfClass) -> OfClass:
    return cast(OfClass, cache(function))


class ChainOwner(NamedTuple):
    account_id: int | None = None
    agent_id: int | None = None


class Attested:
    """A row with a keyed digest over all columns but the ``unsigned`` ones, renewed at each flush.
    A flush refuses altered rows, and raises ChangedMeanwhile if another transaction was first.
    """

    # The attributes that the digest leaves out, with the reason; those of base classes count, too.
    unsigned: ClassVar[Mapping[str, str]] = {}
    # The statuses in which the row changes too often to record each digest.
    statuses_without_records: ClassVar[tuple[str, ...]] = ()
    id: Any
    status: Any
    __tablename__: str
    __table__: ClassVar[Any]
    __mapper__: ClassVar[Mapper[Any]]

    row_digest: Mapped[str | None] = mapped_column(Text)

    __mapper_args__: Any = {"version_id_col": row_digest, "version_id_generator": False}

    @property
    def chain_owner(self) -> ChainOwner | None:
        """The owner of the chain that records changes of the row; None if they are not recorded."""
        return None

    @property
    def row_name(self) -> str:
        return f"{type(self).__name__} {self.id}"

    def signing_key(self) -> DataKey:
        return WrappedKey.platform_key()

    @property
    def is_genuine(self) -> bool:
        """Whether the row matched its digest when loaded; unflushed changes do not count."""
        state = inspect(self)
        if state.key is None or _MATCHED in state.info:
            return True
        if state.persistent and _unloaded(state):
            with db.session.no_autoflush:  # all of it, as its parts must be of one moment
                db.session.refresh(self, _checked(type(self)) - state.committed_state.keys())
        if not _is_itself(state):
            return False
        if self._matches(_as_loaded(state)):
            state.info[_MATCHED] = True
            return True
        # a flush that is under way has signed it
        is_whole = _checked(type(self)) <= state.dict.keys()
        return bool(state.modified) and is_whole and self._matches(state.dict)

    def _matches(self, values: Mapping[str, Any]) -> bool:
        kept = values[DIGEST]
        expected = digest_of(type(self), values, self.signing_key())
        return kept is not None and compare_digest(kept.encode(), expected.encode())

    def require_genuine(self, **values: object) -> None:
        """Raise RowAltered if the row was altered, or lacks these ``values`` by which SQL found it:
        the database's owner can redefine operators so that others are found.
        """
        if not self.is_genuine or not all(
            compare_digest(str(getattr(self, name)).encode(), str(value).encode())
            for name, value in values.items()
        ):
            raise RowAltered(self.row_name)

    def require_own(self, *relations: str) -> None:
        """Raise RowAltered unless the joined rows are genuine and belong to this row."""
        for name in relations:
            getattr(self, name).require_genuine(id=getattr(self, f"{name}_id"))

    def log_if_altered(self) -> bool:
        """Tell whether the row was altered, and log it: one such row must not block the rest."""
        if is_altered := not self.is_genuine:
            _log.warning("a row was altered", row=self.row_name)
        return is_altered

    def lock(self) -> None:
        db.session.flush()  # a refresh drops what was not written yet
        db.session.refresh(self, with_for_update={"key_share": True, "of": type(self)})


@event.listens_for(Attested, "refresh", propagate=True, raw=True)
@event.listens_for(Attested, "expire", propagate=True, raw=True)
def _forget_match(state: InstanceState[Any], *_about: Any) -> None:
    state.info.pop(_MATCHED, None)


def copy_signed(kind: type[Attested], rows: Iterable[Mapping[str, Any]], key: DataKey) -> None:
    """Sign new rows, given by attribute, and add them by COPY, much faster than a flush."""
    columns = inspect(kind).columns.items()
    names = {key: each.name for key, each in columns if each.computed is None}

    def values() -> Iterator[list[Any]]:
        for row in rows:
            stored = {name: row.get(name) for name in names}
            yield list((stored | {DIGEST: digest_of(kind, stored, key)}).values())

    copy_rows(cast(Table, kind.__table__), list(names.values()), values())


def write(*rows: Any) -> None:
    """Write new and changed rows, attested ones signed: a flush takes three times as long."""
    connection, batches = db.session.connection(), defaultdict[Any, list[dict[str, Any]]](list)
    for row in rows:
        kind, state = type(row), inspect(row)
        is_new, columns = state.key is None, state.mapper.columns.items()
        its = {} if is_new else {f"its_{name}": getattr(row, name) for name in _version_of(kind)}
        if isinstance(row, Attested):
            _sign(state.mapper, connection, row)
        names = state.dict if is_new else state.committed_state
        if set_ := {each.name: state.dict[name] for name, each in columns if name in names}:
            batches[kind, is_new, *set_].append(set_ | its)
        if is_new:
            make_transient_to_detached(row)
            db.session.add(row)
        # as after a flush; SQLAlchemy has no public name for it
        state._commit_all(state.dict, db.session().identity_map)
    for (kind, is_new, *_), batch in batches.items():
        written = connection.execute(_insert_or_update(kind, is_new=is_new), batch)
        if not is_new and written.rowcount != len(batch):
            raise ChangedMeanwhile


def _version_of(kind: Any) -> Iterator[str]:
    return (each.name for each in (*kind.__mapper__.primary_key, kind.__table__.c[DIGEST]))


@cache
def _insert_or_update(kind: Any, *, is_new: bool) -> Insert | Update:
    """Return a statement, to which SQLAlchemy adds the columns that are given."""
    table = kind.__table__
    if is_new:
        return insert(table)
    its = (table.c[name] == bindparam(f"its_{name}") for name in _version_of(kind))
    return update(table).where(*its)


# -- the text of a row ---------------------------------------------------------------------------


@_once_per_class
def signed_columns(kind: type[Any]) -> Mapping[str, Column[Any]]:
    """Return the columns that the digest or hash covers, by attribute."""
    left_out = {name for base in kind.__mro__ for name in vars(base).get("unsigned", ())}
    columns = {each.key: each.columns[0] for each in inspect(kind).column_attrs}
    return {
        name: column
        for name, column in columns.items()
        if isinstance(column, Column) and column.computed is None
        if name not in left_out and name != DIGEST
    }


def row_text(kind: type[Any], values: Mapping[str, Any]) -> str:
    shown = {name: values[name] for name in signed_columns(kind)}
    for name, as_json in _converted(kind):
        if shown[name] is not None:
            shown[name] = as_json(shown[name])
    return canonical_json([kind.__tablename__, shown])


def digest_of(kind: type[Attested], values: Mapping[str, Any], key: DataKey) -> str:
    return key.mac(row_text(kind, values), _CONTEXT)


def plain_rows(kind: type[Attested], *columns: Any) -> Select[Any]:
    """Select signed columns, digest and further columns, as the driver reads them."""
    attributes = kind.__mapper__.columns
    checked = [*signed_columns(kind), DIGEST]
    return select(*(as_read(attributes[name]).label(name) for name in checked), *columns)


def as_read(column: Any) -> TypeCoerce[Any]:
    """Select a column as the driver reads it, to hash many: SQLAlchemy's types take longer."""
    return type_coerce(column, NULLTYPE)


def plain_digest(kind: type[Attested], row: Row[Any], key: DataKey | None = None) -> str:
    return digest_of(kind, row._asdict(), key or WrappedKey.platform_key())


@_once_per_class
def _converted(kind: type[Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the signed attributes whose values are not JSON yet, and how they become it."""
    as_json = {name: _as_json(column) for name, column in signed_columns(kind).items()}
    return [(name, convert) for name, convert in as_json.items() if convert is not None]


def _as_json(column: Column[Any]) -> Callable[[Any], Any] | None:
    match column.type:
        case UtcDateTime():
            return clock.iso
        case Uuid():
            return str
        case LargeBinary():
            return lambda value: sha256(value).hexdigest()
        case Numeric(scale=int(scale)):
            return lambda value: _rounded(value, scale)
        case ARRAY():
            return list
        case JSON() if type(column.type) is JSON:  # its stored text is signed
            return lambda value: value if isinstance(value, str) else canonical_json(value)
    return None


def _rounded(value: Any, scale: int) -> str:
    # PostgreSQL rounds halves away from zero
    exact = Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    return format(exact, "f")


# -- what every flush does -----------------------------------------------------------------------


@event.listens_for(Attested, "before_insert", propagate=True)
@event.listens_for(Attested, "before_update", propagate=True)
def _sign(_mapper: Mapper[Any], _connection: Connection, row: Attested) -> None:
    kind, state, before = type(row), inspect(row), None
    known: Mapping[str, Any] = {}
    changed: Collection[str] = signed_columns(kind)
    if state.key is None:
        _complete(row)
    else:
        was = state.committed_state
        changed = [name for name in changed if name in was and was[name] != state.dict[name]]
        if not changed:
            return
        changed = [*changed, *_touch(row, changed)]
        known = _as_loaded(state)
        if _MATCHED not in state.info and not row._matches(known):
            raise RowAltered(row.row_name)
        before = known[DIGEST]
    values = {**known, **{name: getattr(row, name) for name in changed}}
    row.row_digest = digest_of(kind, values, row.signing_key())
    _note_change(row, is_update=before is not None, before=before)


@event.listens_for(Attested, "before_delete", propagate=True)
def _note_deleted(_mapper: Mapper[Any], _connection: Connection, row: Attested) -> None:
    _note_change(row, is_update=False, before=row.row_digest)


def _complete(row: Attested) -> None:
    for name, column in signed_columns(type(row)).items():
        if getattr(row, name) is None and column.default is not None:
            setattr(row, name, _value_of(column.default))
    if "id" in signed_columns(type(row)):
        row_id(row)


def _touch(row: Attested, changed: Collection[str]) -> list[str]:
    columns = signed_columns(type(row))
    touched = [each for each in columns.keys() - changed if columns[each].onupdate is not None]
    for name in touched:
        setattr(row, name, _value_of(columns[name].onupdate))
    return touched


def _value_of(default: Any) -> Any:
    return default.arg(None) if default.is_callable else default.arg


@_once_per_class
def _checked(kind: type[Attested]) -> frozenset[str]:
    return frozenset((*signed_columns(kind), DIGEST))


def _unloaded(state: InstanceState[Any]) -> frozenset[str]:
    return _checked(state.class_) - state.dict.keys() - state.committed_state.keys()


def _is_itself(state: InstanceState[Any]) -> bool:
    """Tell whether a reload found this row, and no other."""
    identity = tuple(state.mapper.primary_key_from_instance(state.obj()))
    return state.key is not None and tuple(state.key[1]) == identity


def _as_loaded(state: InstanceState[Any]) -> Mapping[str, Any]:
    """Return signed columns and digest as last loaded or flushed; unknown ones as stored."""
    loaded = {**state.dict, **state.committed_state}
    kind, key = state.class_, state.key
    is_known = NO_VALUE not in state.committed_state.values()
    if key is None or (is_known and _checked(kind) <= loaded.keys()):
        return loaded
    is_it = [
        column == value for column, value in zip(state.mapper.primary_key, key[1], strict=True)
    ]
    return db.session.connection().execute(plain_rows(kind).where(*is_it)).one()._asdict()


# -- changes that no record covers yet -----------------------------------------------------------


class _Change(NamedTuple):
    row: Attested
    is_update: bool
    before: str | None


def _note_change(row: Attested, *, is_update: bool, before: str | None) -> None:
    if row.chain_owner is None:
        return
    if row.statuses_without_records and row.status in row.statuses_without_records:
        return
    changed = _changed(db.session())
    first = changed.get(row.row_name, _Change(row, is_update, before))
    changed[row.row_name] = _Change(row, is_update or first.is_update, first.before)


def changed_rows(owner: ChainOwner) -> dict[str, DigestChange]:
    """Return the rows changed since the owner's last record, and mark them as recorded: call it
    after a flush while writing a record, never inside a savepoint.
    """
    changed = _changed(db.session())
    mine = [name for name, change in changed.items() if change.row.chain_owner == owner]
    digests: dict[str, DigestChange] = {}
    for name in mine:
        row, _, before = changed.pop(name)
        state = inspect(row)
        after = None if state.deleted else row.row_digest
        # a savepoint that was rolled back took its changes back
        if (state.persistent or state.deleted) and before != after:
            digests[name] = (before, after)
    return digests


def unrecorded_updates(session: Session) -> dict[ChainOwner, list[str]]:
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
