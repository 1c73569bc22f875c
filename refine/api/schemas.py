"""Base classes of bodies, queries and responses, which validate and document themselves.

Subclasses live in the modules of their operations. Attribute docstrings become the descriptions in
the OpenAPI document.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from refine import clock

# A field that may be left out, which is not the same as null: see ``model_fields_set``.
Omittable = Field(default_factory=lambda: None)

# Further invalid fields are only counted.
MAX_FIELD_ERRORS = 20

_SENTENCES = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be a boolean",
    "list_type": "must be an array",
    "model_type": "must be an object",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length:,} items",
    "greater_than": "must be greater than {gt:,}",
    "greater_than_equal": "must be at least {ge:,}",
    "less_than_equal": "must be at most {le:,}",
    "literal_error": "must be {expected}",
    "refused": "{reason}",
}


class FieldError(BaseModel):
    """An invalid field, named by its path, such as `messages[3].role`."""

    field: str
    detail: str


class _Sent(BaseModel):
    """Input: unknown fields and conversions are refused."""

    model_config = ConfigDict(
        extra="forbid", strict=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    whole: ClassVar[str]
    part: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, sent: object) -> object:
        """Refuse unknown fields without repeating their names, which may be content."""
        known = [each.alias or name for name, each in cls.model_fields.items()]
        if isinstance(sent, dict) and sent.keys() - set(known):
            takes = ", ".join(known) or f"no {cls.part}s"
            raise _refused(f"has an unknown {cls.part}; it accepts {takes}")
        return sent


class Body(_Sent):
    """A JSON object that a program sends."""

    whole = "the body"
    part = "field"


class EmptyBody(Body):
    """A body without fields; it may be left out."""


class Query(_Sent):
    """The parameters of a query string."""

    whole = "the query"
    part = "parameter"


class Resource(BaseModel):
    """The body of a response."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    def of(cls, source: object, **fields: Any) -> Self:
        """Return the resource of an object: its attributes, unless ``fields`` say otherwise.

        Not by pydantic's ``from_attributes``, which turns every error of an attribute (a seal that
        does not open, a lost connection) into one of validation.
        """
        attributes = {name: getattr(source, name) for name in cls.model_fields.keys() - fields}
        return cls(**attributes, **fields)


@dataclass(frozen=True)
class OneOf:
    """Annotates a string that is one of these words."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: Any, _: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema(list(self.words))


def field_errors(error: ValidationError, model: type[_Sent]) -> list[FieldError]:
    """Return errors of the first invalid fields, without repeating what was sent."""
    found = error.errors(include_url=False, include_input=False)[:MAX_FIELD_ERRORS]
    return [_field_error(each, model.whole) for each in found]


def _field_error(found: ErrorDetails, whole: str) -> FieldError:
    field = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in found["loc"])
    field = field.removeprefix(".")
    sentence = _SENTENCES.get(found["type"], "is not valid").format(**found.get("ctx", {}))
    return FieldError(field=field, detail=f"{field or whole} {sentence}")


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
    raise _refused("must be a date such as 2026-03-01")


def _instant(sent: object) -> datetime:
    # near the years 1 and 9999, converting to UTC may overflow
    with suppress(ValueError, OverflowError):
        if isinstance(sent, str) and (at := datetime.fromisoformat(sent)).tzinfo is not None:
            return at.astimezone(UTC)
    raise _refused("must be a time with its zone, such as 2026-03-01T12:00:00Z")


# In a query string, every value is text.
integer_from_text = BeforeValidator(_integer)
QueryBoolean = Annotated[bool, BeforeValidator(_boolean)]
QueryDay = Annotated[date, BeforeValidator(_day)]

Instant = Annotated[datetime, BeforeValidator(_instant)]
Time = Annotated[
    datetime, PlainSerializer(clock.iso), WithJsonSchema({"type": "string", "format": "date-time"})
]
Usd = Annotated[
    Decimal,
    WithJsonSchema(
        {"type": "string", "description": "A decimal number.", "examples": ["0.012345"]}
    ),
]
