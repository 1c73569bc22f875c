"""The MCP memory server's graph, as JSON Lines; observations become memories, relations do not."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.rows import (
    BLANK,
    BadRow,
    Incoming,
    LeftOut,
    Row,
    extra_of,
    first_text,
    json_object,
    known_and_other_tags,
    line_values,
    numbered_lines,
    subject_prefix,
    time_in,
)

_NAMES = ("name", "entityName", "id")
_TYPES = ("entityType", "entity_type")


def read(stream: BinaryIO) -> Iterator[Row]:
    """Yield the observations of each line's entities; some writers put two objects on one line."""
    for number, line in numbered_lines(stream):
        place = f"line {number}"
        try:
            for value in line_values(line):
                yield from _rows(place, json_object(value))
        except InvalidValue as error:
            yield BadRow(place, str(error))


def _rows(place: str, entity: dict[str, Any]) -> Iterator[Row]:
    if entity.get("type") == "relation":
        yield LeftOut("relations between entities; only observations are imported")
        return
    if entity.get("type") != "entity":
        raise InvalidValue("is neither an entity nor a relation")
    name, observations = first_text(entity, *_NAMES), entity.get("observations")
    if not name:
        raise InvalidValue(f"has no {', '.join(_NAMES)}")
    if not isinstance(observations, list):
        raise InvalidValue("has no list of observations")
    for number, observation in enumerate(observations, 1):
        where = f"{place}, observation {number}"
        try:
            yield _memory(where, name, entity, observation)
        except InvalidValue as error:
            yield BadRow(where, str(error))


def _memory(place: str, name: str, entity: dict[str, Any], observation: object) -> Row:
    if not isinstance(observation, str):
        raise InvalidValue("is not text")
    if not observation.strip():
        return LeftOut(BLANK)
    tags, others = known_and_other_tags(entity.get("tags"))
    type_ = first_text(entity, *_TYPES)
    return Incoming(
        place=place,
        content=observation,
        prefix=subject_prefix(f"{name} ({type_.strip()}):" if type_ else f"{name}:"),
        tags=tags,
        created_at=time_in(entity),
        within=name,
        extra=extra_of({**entity, "name": name, "tags": others}, exclude=("type", "observations")),
    )
