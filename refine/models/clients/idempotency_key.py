"""Idempotency keys: a repeated API request is carried out once."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from sqlalchemy import CheckConstraint, ForeignKey, Text, UniqueConstraint, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Mapped, mapped_column, relationship

from refine import clock
from refine.errors import InvalidValue
from refine.extensions import Base, canonical_json, db
from refine.models.clients.api_token import ApiToken
from refine.models.columns import BigId, Created, Sealed
from refine.models.keys import SealedText, WrappedKey
from refine.rules.content import storable_or_none
from refine.sealing import DataKey

ANSWERS_KEPT_FOR = timedelta(hours=24)

_REQUEST_CONTEXT = "idempotency_keys.request"


@dataclass(frozen=True)
class StoredResponse:
    status: int
    body: str
    media_type: str | None


class IdempotencyKey(Base):
    """One key of one token; its answer is sealed, under the agent's or the platform's key."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        UniqueConstraint("token_id", "key"),
        CheckConstraint("(answer IS NULL) = (answered_at IS NULL)", name="answered"),
    )

    id: Mapped[BigId]
    token_id: Mapped[int] = mapped_column(ForeignKey("api_tokens.id"))
    key: Mapped[str] = mapped_column(Text)
    request_hash: Mapped[str] = mapped_column(Text)
    sealed_answer: Mapped[Sealed | None] = mapped_column("answer")
    created_at: Mapped[Created] = mapped_column(index=True)
    answered_at: Mapped[datetime | None]

    token: Mapped[ApiToken] = relationship()

    answer = SealedText(storable_or_none)

    @classmethod
    def reserve(
        cls, token: ApiToken, key: str, request: str, at: datetime | None = None
    ) -> tuple["IdempotencyKey", bool]:
        """Return the key's row, and whether it is new; InvalidValue if another request used it."""
        at = at or clock.now()
        hashed = _data_key(token).mac(request, _REQUEST_CONTEXT)
        new = {"request_hash": hashed, "created_at": at, "answer": None, "answered_at": None}
        # an expired row is taken over; any other one is locked, so that it cannot go meanwhile
        taken = (
            insert(cls)
            .values(token_id=token.id, key=key, **new)
            .on_conflict_do_update(
                index_elements=[cls.token_id, cls.key],
                set_=new,
                where=cls.created_at <= at - ANSWERS_KEPT_FOR,
            )
            .returning(cls)
        )
        row = db.session.scalar(taken, execution_options={"populate_existing": True})
        if row is not None:
            return row, True
        mine = select(cls).where(cls.token_id == token.id, cls.key == key)
        row = db.session.scalars(mine.execution_options(populate_existing=True)).one()
        # whatever SQL found: an answer is repeated to its own token alone
        if (row.token_id, row.key, row.request_hash) != (token.id, key, hashed):
            raise InvalidValue(
                "the Idempotency-Key was used for a different request; use another key"
            )
        return row, False

    def store(self, answer: StoredResponse, at: datetime | None = None) -> None:
        self.answer = canonical_json(asdict(answer))
        self.answered_at = at or clock.now()

    def stored_response(self) -> StoredResponse | None:
        return None if self.answer is None else StoredResponse(**json.loads(self.answer))

    def data_key(self) -> DataKey:
        return _data_key(self.token)

    @classmethod
    def delete_expired(cls, at: datetime) -> int:
        """Delete expired keys; return how many."""
        old = delete(cls).where(cls.created_at <= at - ANSWERS_KEPT_FOR).returning(cls.id)
        return len(db.session.scalars(old).all())


def _data_key(token: ApiToken) -> DataKey:
    return token.agent.data_key() if token.agent is not None else WrappedKey.platform_key()
