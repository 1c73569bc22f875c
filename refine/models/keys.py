"""Data keys, wrapped by encryption keys; what they seal, and the secrets that they hash."""

from collections.abc import Callable
from datetime import datetime
from secrets import token_urlsafe
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeVar, cast, overload

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Index,
    Select,
    Sequence,
    Text,
    and_,
    event,
    func,
    inspect,
    or_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, Session, mapped_column

from refine.errors import Erased, SealingError
from refine.extensions import Base, db
from refine.models.columns import BigId, Created, Sealed
from refine.sealing import ContentKey, DataKey, Place, keyring, missing_key

_PLATFORM_KEY = "refine.platform_key"
_PLATFORM = "the platform"

Purpose = Literal["agent", "platform"]
T = TypeVar("T", bound=str | None)


def key_owner_name(agent_id: int) -> str:
    return f"agent {agent_id}"


class Rotation(NamedTuple):
    """One batch of a rotation: the last id, how many keys were re-wrapped, and which are broken."""

    after_id: int
    rotated: int
    broken: list[int]


class WrappedKey(Base):
    """A data key, wrapped by one of REFINE_ENCRYPTION_KEYS; the platform's hashes audit chains."""

    __tablename__ = "data_keys"
    __table_args__ = (
        CheckConstraint("purpose IN ('agent', 'platform')", name="purpose"),
        CheckConstraint("(wrapped IS NULL) = (destroyed_at IS NOT NULL)", name="destroyed"),
        Index(
            "uq_data_keys_platform",
            "purpose",
            unique=True,
            postgresql_where=text("purpose = 'platform'"),
        ),
    )

    id: Mapped[BigId]
    purpose: Mapped[str] = mapped_column(Text)
    wrapped: Mapped[Sealed | None]
    wrapped_by: Mapped[str] = mapped_column(Text, index=True)
    created_at: Mapped[Created]
    destroyed_at: Mapped[datetime | None]

    @classmethod
    def for_agent(cls, agent_id: int) -> "WrappedKey":
        """Return a fresh key, not yet stored; WrongKey if the keyring does not fit the database."""
        return cls._new("agent", key_owner_name(agent_id))

    @classmethod
    def _new(cls, purpose: Purpose, owner: str) -> "WrappedKey":
        cls.check_keyring()
        ring = keyring()
        return cls(purpose=purpose, wrapped=ring.wrap_new(owner), wrapped_by=ring.primary)

    @classmethod
    def platform(cls) -> "WrappedKey":
        """Return the platform's key, as old as the installation; the first call makes it."""
        of_platform = select(cls).where(cls.purpose == "platform")
        found = db.session.scalars(of_platform).one_or_none()
        if found is not None:
            return found
        made = cls._new("platform", _PLATFORM)
        db.session.execute(
            insert(cls)
            .values(purpose="platform", wrapped=made.wrapped, wrapped_by=made.wrapped_by)
            .on_conflict_do_nothing()
        )
        return db.session.scalars(of_platform).one()

    @classmethod
    def platform_key(cls) -> DataKey:
        """Return the platform's key, opened; looked up once for each database session."""
        kept = db.session().info
        if _PLATFORM_KEY not in kept:
            kept[_PLATFORM_KEY] = cls.platform().open(_PLATFORM)
        return cast(DataKey, kept[_PLATFORM_KEY])

    @classmethod
    def rotate(cls, *, after_id: int, limit: int) -> "Rotation | None":
        """Re-wrap the next keys under older ones, skip locked ones; None if none is left."""
        older = db.session.scalars(
            select(cls)
            .where(cls.id > after_id, cls._is_under_older_key())
            .order_by(cls.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
            .execution_options(populate_existing=True)
        ).all()
        broken = [key.id for key in older if not key._rewrap()]
        return Rotation(older[-1].id, len(older) - len(broken), broken) if older else None

    def _rewrap(self) -> bool:
        ring = keyring()
        try:
            self.wrapped = ring.rewrap(self.wrapped or b"", self.wrapped_by)
        except SealingError:
            return False
        self.wrapped_by = ring.primary
        return True

    @classmethod
    def count_under_older_keys(cls) -> int:
        """Count the keys not wrapped by the keyring's first key."""
        older = select(func.count()).select_from(cls).where(cls._is_under_older_key())
        return db.session.scalar(older) or 0

    @classmethod
    def check_keyring(cls) -> None:
        """Raise WrongKey if a stored key is wrapped by a key that the keyring lacks."""
        older = select(cls.wrapped_by).where(cls._is_under_older_key()).distinct()
        if unknown := sorted(set(db.session.scalars(older)) - keyring().fingerprints):
            raise missing_key(*unknown)

    @classmethod
    def _is_under_older_key(cls) -> ColumnElement[bool]:
        primary = keyring().primary
        # two ranges, because an index finds nothing by !=
        is_other = or_(cls.wrapped_by < primary, cls.wrapped_by > primary)
        return and_(is_other, cls.wrapped.is_not(None))

    def open(self, owner: str) -> DataKey:
        """Return the key, ready to use; Erased, or SealingError if it is another's."""
        if self.wrapped is None:
            raise Erased("the data key was destroyed: everything it sealed is erased for good")
        return keyring().unwrap(self.wrapped, self.wrapped_by, owner)


@event.listens_for(Session, "after_rollback")
def _forget_platform_key(session: Session) -> None:
    """The transaction that made the key may be rolled back."""
    session.info.pop(_PLATFORM_KEY, None)


# -- secrets of links, cookies and tokens, of which only the hash is stored -----------------------


def new_secret() -> str:
    """Return 256 random bits for a link or a cookie."""
    return token_urlsafe(32)


def keyed_hash(secret: str, context: str) -> str:
    """Return the keyed hash under which a random secret is stored and looked up."""
    return WrappedKey.platform_key().mac(secret, context)


# -- what is sealed under a data key, in its place ------------------------------------------------


class KeyHolder(Protocol):
    @property
    def id(self) -> Any: ...
    def data_key(self) -> ContentKey:
        """Return the opened key of its texts; SealingError where it was destroyed."""


def row_id(row: Any) -> Any:
    """Return the row's id; a new row gets its own now: seals and digests are bound to it."""
    if row.id is None:
        default = inspect(type(row)).attrs["id"].columns[0].default
        if default is not None and default.is_callable:
            row.id = default.arg(None)
        else:
            ids = Sequence(f"{row.__tablename__}_id_seq")
            row.id = db.session.connection().scalar(select(ids.next_value()))
    return row.id


def next_ids(ids: Sequence, count: Any) -> Select[Any]:
    """Return a query for that many new ids of a sequence, in order; NULL for none."""
    return select(func.array_agg(ids.next_value())).select_from(func.generate_series(1, count))


def place_of(row: Any, column: str) -> Place:
    return Place(f"{row.__tablename__}.{column}", row_id(row))


def content_key_place(memory_id: int) -> Place:
    return Place("agent_memories.content_key", memory_id)


class SealedText(Generic[T]):
    """A text attribute, encrypted in ``sealed_<name>``; the column must be called like the text.
    ``valid`` normalises or raises InvalidValue; setting an equal text keeps the stored bytes.
    """

    def __init__(self, valid: Callable[[str, object], T]) -> None:
        self._valid: Callable[[str, object], T] = valid

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, instance: KeyHolder, owner: Any) -> T: ...
    def __get__(self, instance: KeyHolder | None, owner: Any) -> Self | T:
        return self if instance is None else cast(T, self._open(instance))

    def __set__(self, instance: KeyHolder, value: object) -> None:
        text = self._valid(self._name, value)
        if text != self._open(instance):
            self._seal(instance, text)

    def _open(self, instance: KeyHolder) -> str | None:
        sealed = getattr(instance, f"sealed_{self._name}")
        if sealed is None:
            return None
        return instance.data_key().open(sealed, place_of(instance, self._name))

    def _seal(self, instance: KeyHolder, text: str | None) -> None:
        sealed = None
        if text is not None:
            sealed = instance.data_key().seal(text, place_of(instance, self._name))
        setattr(instance, f"sealed_{self._name}", sealed)
