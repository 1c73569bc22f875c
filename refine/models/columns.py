"""Column types that the models share."""

import uuid
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Protocol, overload

from sqlalchemy import BigInteger, Identity, LargeBinary, Numeric, Text, false, text, true
from sqlalchemy.orm import mapped_column

from refine import clock
from refine.rules.content import storable_or_none
from refine.sealing import DataKey

# The largest id that a bigint column can hold.
MAX_ID = 2**63 - 1

BigId = Annotated[int, mapped_column(BigInteger, Identity(), primary_key=True)]
Uuid = Annotated[
    uuid.UUID,
    mapped_column(primary_key=True, default=uuid.uuid4, server_default=text("gen_random_uuid()")),
]
Name = Annotated[str, mapped_column(Text)]
Created = Annotated[datetime, mapped_column(default=clock.now, server_default=text("now()"))]
Updated = Annotated[
    datetime, mapped_column(default=clock.now, onupdate=clock.now, server_default=text("now()"))
]
BoolFalse = Annotated[bool, mapped_column(default=False, server_default=false())]
BoolTrue = Annotated[bool, mapped_column(default=True, server_default=true())]
Count = Annotated[int, mapped_column(default=0, server_default=text("0"))]
Usd = Annotated[Decimal, mapped_column(Numeric(12, 6))]
Sealed = Annotated[bytes, mapped_column(LargeBinary)]


class KeyHolder(Protocol):
    """A row whose texts are sealed under one data key."""

    def data_key(self) -> DataKey:
        """Return the opened key; SealingError where it was destroyed."""


class SealedText:
    """A text attribute, stored encrypted in the column attribute ``sealed_<name>``.

    ``valid`` normalises a text before it is stored, or raises InvalidValue; by default it accepts
    any text that PostgreSQL can hold. Setting the same text again keeps the stored bytes.
    """

    def __init__(self, valid: Callable[[str, object], str | None] = storable_or_none) -> None:
        self._valid = valid

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name
        self._stored = f"sealed_{name}"
        self._context = f"{owner.__tablename__}.{name}"

    @overload
    def __get__(self, instance: None, owner: Any) -> "SealedText": ...
    @overload
    def __get__(self, instance: KeyHolder, owner: Any) -> str | None: ...
    def __get__(self, instance: KeyHolder | None, owner: Any) -> "SealedText | str | None":
        if instance is None:
            return self
        sealed = getattr(instance, self._stored)
        return None if sealed is None else instance.data_key().open(sealed, self._context)

    def __set__(self, instance: KeyHolder, value: object) -> None:
        text = self._valid(self._name, value)
        if text == self.__get__(instance, type(instance)):
            return
        sealed = None if text is None else instance.data_key().seal(text, self._context)
        setattr(instance, self._stored, sealed)
