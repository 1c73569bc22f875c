"""What may be sent, held against the same schemas that the document shows.

A small part of JSON Schema (``KEYWORDS``): enough for flat objects, and its messages quote no
value. What a schema cannot say, such as a length once trimmed, the models refuse.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

Schema = dict[str, Any]
Fault = tuple[str, str]

# What is looked at, and what only tells a reader something.
KEYWORDS = frozenset(
    {
        *("type", "enum", "minimum", "maximum", "exclusiveMinimum", "format", "minLength"),
        *("items", "minItems", "properties", "required", "additionalProperties"),
    }
)
REMARKS = frozenset({"title", "description", "default", "examples"})

_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def faults(schema: Schema, value: object, field: str = "") -> Iterator[Fault]:
    """Yield each field that does not fit the schema, with what is wrong with it.

    A field is named with the way to it: ``messages[3].role``.
    """
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(kind, value) for kind in kinds):
        yield field, f"{_named(field)} must be {' or '.join(map(_article, kinds))}"
        return
    if isinstance(value, dict):
        yield from _faults_of_object(schema, value, field)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield field, f"{_named(field)} must not be empty"
        for n, item in enumerate(value):
            yield from faults(schema.get("items", {}), item, f"{field}[{n}]")
    elif "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(str(each) for each in schema["enum"] if each is not None)
        yield field, f"{_named(field)} must be one of: {allowed}"
    elif isinstance(value, str):
        yield from _faults_of_text(schema, value, field)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _faults_of_number(schema, value, field)


def from_url(schema: Schema, text: str) -> object:
    """Return the value that a parameter of a URL stands for; the text itself where it is none."""
    if schema["type"] == "integer" and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if schema["type"] == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def _faults_of_object(schema: Schema, value: Mapping[str, Any], field: str) -> Iterator[Fault]:
    properties = schema.get("properties", {})
    place = f"{field}." if field else ""
    if schema.get("additionalProperties") is False and set(value) - set(properties):
        # the name itself may be anything: it is not repeated
        unknown = f"unknown field in {field}" if field else "unknown field"
        known = f"the fields are: {', '.join(properties)}" if properties else "none is taken here"
        yield field, f"{unknown}; {known}"
    for name in schema.get("required", ()):
        if name not in value:
            yield place + name, f"{place}{name} is required"
    for name, own in properties.items():
        if name in value:
            yield from faults(own, value[name], place + name)


def _faults_of_text(schema: Schema, value: str, field: str) -> Iterator[Fault]:
    if len(value) < schema.get("minLength", 0):
        yield field, f"{_named(field)} must not be empty"
    form = schema.get("format")
    if form == "date" and not _is_date(value):
        yield field, f"{_named(field)} must be a date such as 2026-03-01"
    if form == "date-time" and not _is_instant(value):
        yield field, f"{_named(field)} must be a time with its zone, such as 2026-03-01T12:00:00Z"


def _faults_of_number(schema: Schema, value: float, field: str) -> Iterator[Fault]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield field, f"{_named(field)} must be more than {schema['exclusiveMinimum']}"
    elif low is not None and value < low or high is not None and value > high:
        span = f"from {low:,} to {high:,}" if None not in (low, high) else f"at most {high}"
        yield field, f"{_named(field)} must be {span}"


def _is(kind: str, value: object) -> bool:
    # in Python true is a number
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _PYTHON[kind])


def _is_date(text: str) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d\d-\d\d", text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_instant(text: str) -> bool:
    try:
        at = datetime.fromisoformat(text)
        # near the years 1 and 9999 a zone may lead out of the calendar
        return at.tzinfo is not None and bool(at.astimezone(UTC))
    except (ValueError, OverflowError):
        return False


def _named(field: str) -> str:
    return field or "the body"


def _article(kind: str) -> str:
    return "null" if kind == "null" else f"an {kind}" if kind[0] in "aio" else f"a {kind}"
