"""Base classes of bodies, queries and responses; attribute docstrings describe them in OpenAPI."""

import re
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from refine import clock

# A field that may be left out, and is None then; that is not the same as null: see
# ``model_fields_set``.
Omittable = Field(default_factory=lambda: None)

# Further invalid fields are only counted.
MAX_FIELD_ERRORS = 20


class FieldError(BaseModel):
    """An invalid field, named by its path, such as `messages[3].role`."""

    field: str
    detail: str


class Body(BaseModel):
    """A JSON object that a program sends: unknown fields and conversions are refused."""

    model_config = ConfigDict(
        extra="forbid", strict=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )


class EmptyBody(Body):
    """A body without fields; it may be left out."""


class Query(Body):
    """The parameters of a query string."""


class Resource(BaseModel):
    """The body of a response."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    def of(cls, source: object, **fields: Any) -> Self:
        """Return the resource; ``from_attributes`` would hide errors of attributes."""
        attributes = {name: getattr(source, name) for name in cls.model_fields.keys() - fields}
        return cls(**attributes, **fields)


Time = Annotated[
    datetime, PlainSerializer(clock.iso), WithJsonSchema({"type": "string", "format": "date-time"})
]
Usd = Annotated[
    Decimal,
    WithJsonSchema(
        {"type": "string", "description": "A decimal number.", "examples": ["0.012345"]}
    ),
]


class Spending(Resource):
    """What the calls of models took."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_usd: Usd
    unpriced_calls: int
    """Calls of models whose cost is unknown, and not part of `cost_usd`."""
    reading_prompt_tokens: int
    """What second readings took of these tokens and this cost."""
    reading_completion_tokens: int
    reading_cost_usd: Usd


def field_errors(error: ValidationError) -> list[FieldError]:
    """Return errors of the first invalid fields, without repeating what was sent."""
    found = error.errors(include_url=False, include_input=False)[:MAX_FIELD_ERRORS]
    return [_field_error(each) for each in found]


def _field_error(found: ErrorDetails) -> FieldError:
    path, said = found["loc"], found["msg"]
    if found["type"] == "extra_forbidden":  # its name may be content
        path, said = path[:-1], "There is an unknown field or parameter"
    field = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in path)
    field = field.removeprefix(".")
    return FieldError(field=field, detail=f"{field}: {said}" if field else said)


def _refused(reason: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


def _integer(sent: object) -> object:
    is_integer = isinstance(sent, str) and re.fullmatch("-?[0-9]{1,18}", sent)
    return int(sent) if is_integer else sent  # type: ignore[call-overload]


def _boolean(sent: object) -> object:
    return {"true": True, "false": False}.get(sent, sent) if isinstance(sent, str) else sent


def _day(sent: object) -> date:
    if isinstance(sent, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", sent):
        with suppress(ValueError):
            return date.fromisoformat(sent)
    raise _refused("Must be a date such as 2026-03-01")


def _instant(sent: object) -> datetime:
    # near the years 1 and 9999, converting to UTC may overflow
    with suppress(ValueError, OverflowError):
        if isinstance(sent, str) and (at := datetime.fromisoformat(sent)).tzinfo is not None:
            return at.astimezone(UTC)
    raise _refused("Must be a time with its zone, such as 2026-03-01T12:00:00Z")


# In a query string, every value is text.
integer_from_text = BeforeValidator(_integer)
QueryBoolean = Annotated[bool, BeforeValidator(_boolean)]
QueryDay = Annotated[date, BeforeValidator(_day)]

Instant = Annotated[datetime, BeforeValidator(_instant)]
