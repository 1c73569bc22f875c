"""The memory server of the Model Context Protocol: its knowledge graph, as JSON Lines.

Each observation of an entity becomes a memory that begins with the entity's name and type: "Alice
(person): Speaks Welsh". Relations between entities are counted and left out.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

from refine.errors import InvalidValue
from refine.transfer.json_files import json_object, line_values, numbered_lines
from refine.transfer.rows import (
    BadRow,
    Incoming,
    LeftOut,
    Row,
    extra_of,
    first_text,
    known_and_other_tags,
    row_at,
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
            values = line_values(line)
        except InvalidValue as error:
            yield BadRow(place, str(error))
            continue
        for value in values:
            yield from _rows(place, value)


def _rows(place: str, value: Any) -> Iterator[Row]:
    try:
        entity = json_object(value)
        if entity.get("type") == "relation":
            yield LeftOut("relation")
            return
        name, observations = _named_observations(entity)
    except InvalidValue as error:
        yield BadRow(place, str(error))
        return
    for number, observation in enumerate(observations, 1):
        where = f"{place}, observation {number}"
        yield row_at(where, partial(_memory, where, name, entity, observation))


def _named_observations(entity: dict[str, Any]) -> tuple[str, list[Any]]:
    if entity.get("type") != "entity":
        raise InvalidValue("is neither an entity nor a relation")
    name = first_text(entity, *_NAMES)
    if not name:
        raise InvalidValue(f"has no {', '.join(_NAMES)}")
    observations = entity.get("observations")
    if not isinstance(observations, list):
        raise InvalidValue("has no list of observations")
    return name, observations


def _memory(place: str, name: str, entity: dict[str, Any], observation: object) -> Row:
    if not isinstance(observation, str):
        raise InvalidValue("is not text")
    if not observation.strip():
        return LeftOut("blank")
    tags, others = known_and_other_tags(entity.get("tags"))
    kept = {**entity, "name": name, "tags": others}
    return Incoming(
        place=place,
        content=observation,
        prefix=_prefix(name, entity),
        tags=tags,
        created_at=time_in(entity),
        within=name,
        extra=extra_of(kept, exclude=("type", "observations")),
    )


def _prefix(name: str, entity: dict[str, Any]) -> str:
    type_ = first_text(entity, *_TYPES)
    return subject_prefix(f"{name} ({type_.strip()}):" if type_ else f"{name}:")
